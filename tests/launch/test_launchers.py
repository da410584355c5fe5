"""Which launcher trains a sweep, what it refuses, and how runs come home from far machines."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.errors import MissingConfigException

from lm_experiments.launch import launcher, ray_files, ray_worker
from lm_experiments.launch.ray_files import pieces_of, put_together
from lm_experiments.launch.ray_worker import RemoteTask
from lm_experiments.launch.task import Task
from lm_experiments.study.explain import explain

PAIR = ("-m", "placement=pre,post")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*PAIR, "resources.gpus=64"), "resources.gpus=64, but this machine has "),
        ((*PAIR, "resources.at_once=0"), "type resources.at_once=1 for one after another"),
        ((*PAIR, "hydra/launcher=ray", "resources.at_once=2"), "=2 is not for hydra/launcher=ray"),
        (("resources.at_once=1",), "resources.at_once=1 is for a sweep; add -m"),
        ((*PAIR, "ray.address=h:1"), "ray.address=h:1 is not for hydra/launcher=basic"),
        ((*PAIR, "hydra/launcher=joblib"), "hydra/launcher=joblib is not known"),
        ((*PAIR, "hydra/launcher=ray_aws"), "hydra/launcher=ray_aws is not known to keep runs"),
        ((*PAIR, "hydra/launcher=ray", "resources.gpus=0.3"), "does not divide a GPU"),
        ((*PAIR, "hydra/launcher=ray", "resources.gpus=64"), "this machine has "),
        ((*PAIR, "hydra/launcher=ray", "ray.address=nowhere"), "type ray.address=HOST:6379"),
        ((*PAIR, "hydra/launcher=slurm", "resources.gpus=0.5"), "cannot be asked of SLURM"),
        ((*PAIR, "hydra/launcher=slurm"), "this machine has none (srun); type it on a machine"),
        ((*PAIR, "hydra/launcher=submitit_local", "resources.gpus=1"), "type hydra/launcher=ray"),
        (("hydra/launcher=ray",), "hydra/launcher=ray is for a sweep; add -m"),
        (("resources.cpus=1",), "resources.cpus=1 is for a sweep; add -m"),
    ],
)
def test_what_a_launcher_cannot_do_is_refused(
    train: Callable[..., Any], words: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("ray")
    answer = train(*words)
    assert answer.code == 2, answer.out
    assert message in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_missing_packages_are_named(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = MissingConfigException("", missing_cfg_file="hydra/launcher/ray", options=["basic"])
    sentence = "type pip install 'lm_experiments[ray]'"
    assert sentence in explain(missing, ())
    monkeypatch.setitem(launcher.NEEDED, launcher.RAY, "no_such_module")
    assert sentence in train(*PAIR, "hydra/launcher=ray").err


def test_a_launcher_in_what_is_swept_is_refused(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("submitit")
    far = tmp_path / "conf" / "arch" / "far.yaml"
    far.parent.mkdir(parents=True)
    far.write_text("# @package _global_\ndefaults:\n  - override /hydra/launcher: submitit_local\n")
    search = f"hydra.searchpath=[file://{tmp_path / 'conf'}]"
    answer = train("-m", search, "arch=gpt2,far")
    assert answer.code == 2, answer.out
    assert "arch=far" in answer.err and "hydra/launcher=submitit_local" in answer.err
    assert not Path("runs").exists()


def test_threads_are_the_share_and_the_plan_says_so(train: Callable[..., Any]) -> None:
    pytest.importorskip("ray")
    words = ("hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=6", "resources.cpus=3")
    answer = train(*PAIR, *words, "trainer.threads=null", "plan=true")
    assert answer.code == 0, answer.err
    assert "hydra/launcher=ray: 2 runs at once on this machine, each with 3 CPUs" in answer.out
    assert ", 2 at once." in answer.out


def test_a_run_in_pieces_is_the_same_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(1000)
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "step.ckpt").write_bytes(content)
    (run / "result.json").write_text("{}")
    (run / ".lock").touch()
    (run / "train.log").touch()
    os.utime(run / "result.json", (5, 5))
    monkeypatch.setattr(ray_files, "PIECE_BYTES", 300)
    sent = list(pieces_of(run))
    assert [len(content) for name, _, content in sent if "step" in name] == [300, 300, 300, 100]
    assert sent[-1][0] == "result.json"
    there = tmp_path / "there"
    put_together(iter(sent), there)
    names = {str(p.relative_to(there)) for p in there.rglob("*")}
    assert names == {"checkpoints", "checkpoints/step.ckpt", "result.json", "train.log"}
    assert (there / "checkpoints/step.ckpt").read_bytes() == content
    assert (there / "result.json").stat().st_mtime == 5


def test_a_file_of_which_not_all_pieces_come_is_not_there(tmp_path: Path) -> None:
    def lost() -> Iterator[tuple[str, int, bytes]]:
        yield "train.log", 1, b"whole"
        yield "result.json", 1, b"{"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        put_together(lost(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]


def test_no_more_than_a_few_pieces_are_in_memory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "big.ckpt").write_bytes(b"\1" * (10 * ray_files.PIECE_BYTES))
    tracemalloc.start()
    try:
        put_together(pieces_of(run), tmp_path / "there")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * ray_files.PIECE_BYTES
    assert (tmp_path / "there/big.ckpt").read_bytes() == (run / "big.ckpt").read_bytes()


def test_a_run_comes_home_where_its_folder_is_not_shared(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert train("seed=0", "name=home").code == 0
    [home] = Path("runs/home").glob("*-s0-*")
    first = json.loads((home / "result.json").read_text())
    for path in (home / "result.json", home / "metrics.jsonl"):
        path.unlink()
    for path in (home / "checkpoints").iterdir():
        path.unlink()
    monkeypatch.setattr(ray_worker, "_prepare", lambda task: None)
    monkeypatch.setattr(ray_worker, "_asked_to_stop", lambda key: False)
    # Of this module alone: processes started meanwhile keep short paths for their sockets.
    far = SimpleNamespace(gettempdir=lambda: str(tmp_path / "far"))
    monkeypatch.setattr(ray_worker, "tempfile", far)
    monkeypatch.setattr(ray_worker, "this_node", lambda: "far")

    def copy_from(node: str, source: Path, target: Path) -> None:
        assert node == "home"
        put_together(pieces_of(source), target)

    monkeypatch.setattr(ray_worker, "copy_from", copy_from)
    remote = RemoteTask(
        task=Task(home.absolute()),
        working_dir=str(tmp_path),
        shared=str(tmp_path / "not there"),
        stop_key=b"",
        home="home",
    )
    ending, elsewhere = ray_worker.train_remotely(remote)
    assert ending.status == "done" and elsewhere is not None
    assert elsewhere[0] == "far"
    assert not (home / "result.json").exists()
    put_together(pieces_of(elsewhere[1]), home)
    assert json.loads((home / "result.json").read_text())["val_loss"] == first["val_loss"]
    assert (home / "metrics.jsonl").exists()
