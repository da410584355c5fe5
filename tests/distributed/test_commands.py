"""Commands whose runs use two devices: signals, sudden deaths, and torchrun by hand."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
from harness.commands import Answer
from harness.faults import fault, fault_place, in_step
from harness.processes import Place, until
from harness.runs import assert_same, result, rows

TWO = ("trainer.devices=2", "trainer.accelerator=cpu")
# A norm whose second process comes late, so that the first waits for it before the first step.
LATE = '''
import os, time
from pathlib import Path
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "late", NormOptions)
class Late(RMSNorm):
    """RMSNorm that takes its time."""
    def __init__(self, options, width):
        super().__init__(options, width)
        if os.environ.get("RANK") == "1" and not Path("late").exists():
            Path("late").touch()
            time.sleep(100)
'''
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGUSR1": 138}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return fault_place(tmp_path)


@cache
def calm(folder: Path, *words: str) -> Place:
    """Return a place where the command was typed and nothing happened."""
    there = fault_place(folder / "-".join(("calm", *words)))
    answer = there.train(*TWO, *words)
    assert answer.code == 0, answer.text
    return there


def held(place: Place, step: int, number: int, group: bool = False) -> Answer:
    """Send a signal while both processes stand in the middle of a step; return how it ended."""
    marks = place.folder / "pause"
    return signalled(place, in_step(step, action=f"pause:{marks}"), number, group)


def signalled(
    place: Place, environment: dict[str, str], number: int, group: bool = False, *more: str
) -> Answer:
    """Send a signal while a process is held; return how the command ended."""
    marks = place.folder / "pause"
    with place.start(*TWO, *more, **environment) as command:
        there = marks.with_suffix(".reached")
        until(lambda: there.exists() or command.poll() is not None, 60, "the pause", command)
        command.send(number, group)
        # A busy machine takes its time to pass a signal on.
        time.sleep(2)
        marks.with_suffix(".go").touch()
        return command.wait(30)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("SIGTERM", False),
        pytest.param("SIGINT", True, marks=pytest.mark.slow),
        pytest.param("SIGUSR1", False, marks=pytest.mark.slow),
        pytest.param("SIGTERM", True, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_the_run_and_it_goes_on_to_the_same_end(
    place: Place, name: str, group: bool
) -> None:
    """At one number of processes gloo adds in one order: bit for bit the run without a signal."""
    answer = held(place, 6, getattr(signal, name), group)
    assert answer.code == CODES[name], answer.text
    assert "Traceback" not in answer.text
    assert result(place.run())["status"] == "interrupted"
    assert [path.name for path in (place.run() / "checkpoints").glob("*06.ckpt")]
    again = place.train(*TWO)
    assert again.code == 0, again.text
    assert_same(place.run(), calm(place.folder.parent).run(), saved=False)
    assert place.litter() == []


def test_the_death_of_the_command_ends_its_processes(place: Place) -> None:
    """Leaving the block asserts that no process is left; the same command then goes on."""
    answer = held(place, 7, signal.SIGKILL)
    assert answer.code == 128 + signal.SIGKILL
    assert not (place.run() / "result.json").exists()
    again = place.train(*TWO)
    assert again.code == 0, again.text
    assert rows(place.run()) == rows(calm(place.folder.parent).run())


SHARDED = "trainer.strategy=fsdp"
KILLS = {
    "before a shard is there": ("os.rename", "*/shard-00001-of-00002.ckpt", 2),
    "before the folder has its place": ("os.rename", "*/step-00000008.shards"),
    "while an old one goes": ("shutil.rmtree", "*step-00000004.shards.old.part"),
    "before the weights alone are there": ("os.rename", "*/step-00000012.ckpt"),
    "before the shards of the same step go": ("os.rename", "*step-00000012.shards.old.part"),
}


@pytest.mark.slow
@pytest.mark.parametrize("point", KILLS)
def test_a_kill_around_shards_costs_nothing_but_time(place: Place, point: str) -> None:
    """The whole process group dies; the same command ends with the weights of an unbroken run."""
    killed = place.train(*TWO, SHARDED, **fault(*KILLS[point]))
    assert killed.code != 0, killed.text
    again = place.train(*TWO, SHARDED)
    assert again.code == 0, again.text
    assert_same(place.run(), calm(place.folder.parent, SHARDED).run())
    assert [path.name for path in (place.run() / "checkpoints").iterdir()] == ["step-00000012.ckpt"]
    assert place.litter() == []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 0.05, 0.2])
def test_a_signal_before_the_first_step(place: Place, seconds: float) -> None:
    with place.start(*TWO) as command:
        log = place.folder / "runs" / "single"
        until(lambda: list(log.glob("*/train.log")), 60, "the log", command)
        time.sleep(seconds)
        command.send(signal.SIGTERM)
        answer = command.wait(60)
    assert answer.code == 143, answer.text
    assert "Traceback" not in answer.text
    again = place.train(*TWO)
    assert again.code == 0, again.text


@pytest.mark.slow
def test_a_process_that_waits_for_one_that_a_signal_has_ended_does_not_wait_on(
    place: Place,
) -> None:
    (place.folder / "late.py").write_text(LATE)
    words = (*TWO, "norm=late", "code_paths=[late.py]")
    with place.start(*words) as command:
        until((place.folder / "late").exists, 60, "the second process", command)
        # The first one waits in code that hears no signal.
        time.sleep(2)
        command.send(signal.SIGTERM)
        answer = command.wait(30)
    assert answer.code == 143, answer.text
    assert "Stopped. The same command continues" in answer.text
    again = place.train(*words)
    assert again.code == 0, again.text


@pytest.mark.slow
@pytest.mark.parametrize("call", [50, 112])
def test_a_signal_in_the_second_validation_and_in_the_last(place: Place, call: int) -> None:
    """In the last, one process stands at its 13th window, and the other, of 12, waits for it."""
    held_there = fault("faults.validate", call, 1, f"pause:{place.folder / 'pause'}")
    one_by_one = "data.eval_batch_size=1"
    answer = signalled(place, held_there, signal.SIGTERM, False, one_by_one)
    assert answer.code == 143, answer.text
    assert "Traceback" not in answer.text
    again = place.train(*TWO, one_by_one)
    assert again.code == 0, again.text


@pytest.mark.slow
def test_a_run_directory_is_trained_by_torchrun(place: Place) -> None:
    held(place, 7, signal.SIGKILL)
    run = place.run().relative_to(place.folder)
    words = ["--standalone", "--nproc-per-node", "2", "-m", "lm_experiments.launch.torchrun"]
    command = [sys.executable, "-m", "torch.distributed.run", *words, str(run)]
    done = subprocess.run(
        [*command, "code_paths=[watched.py]"],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert_same(place.run(), calm(place.folder.parent).run(), saved=False)
    assert place.living() == []


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_compiled_blocks_train_alike_on_two_devices(place: Place, strategy: str) -> None:
    arguments = (*TWO, f"trainer.strategy={strategy}", "norm=rmsnorm", "code_paths=[]")
    assert place.train(*arguments, "name=eager").code == 0
    answer = place.train(*arguments, "name=compiled", "compile=true", seconds=110)
    assert answer.code == 0, answer.text
    eager, compiled = result(place.run("eager")), result(place.run("compiled"))
    assert compiled["val_loss"] == pytest.approx(eager["val_loss"], rel=1e-4)
