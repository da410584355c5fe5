"""Sweeps through a real Ray on this machine, its GPUs made up."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from tempfile import gettempdir

import pytest
from harness.processes import Place, until
from harness.runs import assert_same, lasting, result, rows
from spans import at_once, notes

pytest.importorskip("ray")
CODE = ("code_paths=[code.py]", "norm=noting")


def gpus(count: int) -> str:
    return f"+hydra.launcher.ray.init.num_gpus={count}"


def test_results_equal_those_of_a_sequential_sweep(place: Place) -> None:
    grid = ("placement=pre,post", "ffn=relu,swiglu")
    ray = place.train(*grid, "hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2", "name=a")
    assert ray.code == 0, ray.text
    assert "2 runs at once on this machine, each with 1 CPU" in ray.text
    assert "4 done, 0 failed" in ray.text
    # Lines of the runs come through as they are, without Ray's "(train pid=1)" before them.
    assert "pid=" not in ray.text, ray.text
    assert "INFO" not in ray.text and "WARNING" not in ray.text, ray.text
    plain = place.train(*grid, "trainer.threads=1", "name=b")
    assert plain.code == 0, plain.text
    runs = sorted(p for p in (place.folder / "runs/a").iterdir() if (p / "result.json").exists())
    assert len(runs) == 4
    for run in runs:
        other = place.folder / "runs/b" / run.name
        assert (lasting(run), rows(run)) == (lasting(other), rows(other))
        assert result(run)["threads"] == 1
    assert not list((place.folder / "runs/a").glob(".ray-*"))


FAR = """
from lm_experiments.launch import ray_sweep
from lm_experiments.launch.ray_worker import RemoteTask

ray_sweep.RemoteTask = lambda **given: RemoteTask(**{**given, "shared": "/nowhere"})
"""


@pytest.mark.slow
def test_without_a_shared_disk_runs_are_sent_there_and_back(place: Place) -> None:
    """As if workers did not see the sweep's folder; again, to go on from a checkpoint."""
    (place.folder / "far.py").write_text(FAR)
    far = place.folder / "far"
    far.mkdir()
    words = ("seed=0,1", "code_paths=[far.py]", "trainer.checkpoint_every=1", "trainer.threads=1")
    words += ("trainer.keep=checkpoints", "runs_from=[]")
    ray = (*words, "name=apart", "hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2")
    here = place.train(*words, "name=here")
    assert here.code == 0, here.text
    for sent in (2, 1):
        apart = place.train(*ray, TMPDIR=str(far), RAY_TMPDIR=gettempdir())
        assert apart.code == 0, apart.text
        assert "2 done, 0 failed" in apart.text
        runs = [path.parent for path in (place.folder / "runs/apart").glob("*/result.json")]
        assert len(runs) == 2
        for run in runs:
            assert_same(run, place.folder / "runs/here" / run.name)
        assert len(list(far.glob("lm_experiments-*/apart/*/train.log"))) == sent
        shutil.rmtree(far)
        far.mkdir()
        (runs[0] / "result.json").unlink()
        (runs[0] / "checkpoints" / "step-00000004.ckpt").unlink()
    log = (runs[0] / "train.log").read_text()
    assert log.count(" trains ") == 2


@pytest.mark.slow
def test_one_run_per_gpu_of_the_users_mask_and_a_failure_frees_its_own(place: Place) -> None:
    answer = place.train(
        "code_paths=[code.py]",
        "norm=raising,noting",
        "seed=0,1,2",
        "hydra/launcher=ray",
        gpus(2),
        "+hydra.launcher.ray.init.num_cpus=4",
        "name=g",
        CUDA_VISIBLE_DEVICES="2,3",
        PAUSE="0.1",
    )
    assert answer.code == 1, answer.text
    assert "2 runs at once on this machine, each with 1 GPU and 2 CPUs" in answer.text
    assert "3 done, 3 failed" in answer.text
    assert "this norm is broken" in answer.text
    runs = [run for pid, run in notes(place).items() if run[0] != "2,3"]
    assert {gpu for gpu, _, _ in runs} == {"2", "3"}
    for gpu in ("2", "3"):
        assert at_once([run for run in runs if run[0] == gpu]) == 1


@pytest.mark.slow
def test_four_runs_share_a_gpu(place: Place) -> None:
    answer = place.train(
        *CODE,
        "seed=0,1,2,3",
        "hydra/launcher=ray",
        "resources.gpus=0.25",
        gpus(1),
        "+hydra.launcher.ray.init.num_cpus=4",
        "name=q",
        PAUSE="0.5",
    )
    assert answer.code == 0, answer.text
    assert "4 runs at once on this machine, each with 0.25 GPU and 1 CPU" in answer.text
    runs = [run for run in notes(place).values() if run[0] == "0"]
    assert len(runs) == 4
    assert at_once(runs) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)]
)
def test_a_signal_saves_the_runs_and_leaves_no_process(
    place: Place, number: int, send: Callable[[int, int], None]
) -> None:
    words = (
        *CODE,
        "seed=0,1,2",
        "trainer.max_steps=40",
        "hydra/launcher=ray",
        "+hydra.launcher.ray.init.num_cpus=2",
        "name=s",
    )
    with place.start(*words, PAUSE="0.05") as command:
        folder = place.folder / "runs" / "s"

        def training() -> bool:
            return len(list(folder.glob("*/metrics.jsonl"))) == 2

        until(training, 90, "two runs to train", command)
        send(command.pid, number)
        answer = command.wait(60)
    assert answer.code == 128 + number, answer.text
    assert "Stopped. The same command continues" in answer.text
    assert len(list(folder.glob("*/checkpoints/*.ckpt"))) == 2
    assert {result(p.parent)["status"] for p in folder.glob("*/result.json")} == {"interrupted"}
    again = place.train(*words, PAUSE="0")
    assert again.code == 0, again.text
    assert "3 done, 0 failed" in again.text


@pytest.mark.slow
def test_a_signal_to_rays_own_processes_too_ends_the_sweep(place: Place) -> None:
    words = (*CODE, "seed=0,1", "trainer.max_steps=200", "hydra/launcher=ray", "name=t")
    with place.start(*words, PAUSE="0.05") as command:
        files = place.folder.glob
        until(lambda: list(files("runs/t/*/metrics.jsonl")), 90, "a run to train", command)
        os.killpg(command.pid, signal.SIGTERM)
        answer = command.wait(90)
    assert answer.code == 128 + signal.SIGTERM, answer.text


@pytest.mark.slow
def test_a_failure_can_stop_the_sweep(place: Place) -> None:
    answer = place.train(
        "code_paths=[code.py]",
        "norm=raising,noting",
        "on_failure=stop",
        "seed=0,1,2,3",
        "hydra/launcher=ray",
        "+hydra.launcher.ray.init.num_cpus=1",
        "name=f",
    )
    assert answer.code == 1, answer.text
    assert "Stopped. The same command continues" in answer.text
    done = [result(p.parent)["status"] for p in (place.folder / "runs/f").glob("*/result.json")]
    assert done.count("failed") == 1 and "done" not in done
