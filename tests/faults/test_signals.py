"""Signals to a run and to a sweep, as people, terminals and schedulers send them."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from harness.commands import Answer
from harness.faults import fault, fault_place, in_step
from harness.processes import Command, Place, slow, time_limit, until
from harness.runs import assert_same, result

GRID = ("-m", "ffn=relu,swiglu", "name=grid")
# On any machine there is room for both runs at once.
SWEEP = (*GRID, "resources.cpus=0.5")
CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143, "SIGUSR1": 138}
# What a signal may take to end a command whose steps take milliseconds.
PROMPT = 45.0
# Well below the time for which a pause holds a command that nobody ends.
AT_ONCE = 12.0
# Three passes over 25 windows one by one, of three calls each: in the middle of the second, which
# belongs to the tenth step, and of the third, which follows the twelfth.
SECOND_VALIDATION, LAST_VALIDATION = 110, 190


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with time_limit(300):
        yield


class Pause:
    """A command held in the middle of something until it is let go, by as many as ``processes``."""

    def __init__(self, place: Place, processes: int = 1) -> None:
        self.marks = place.folder / "pause"
        self.action = f"pause:{self.marks}"
        self.processes = processes

    def reached(self, command: Command) -> None:
        """Wait until its processes stand there."""
        until(lambda: self._stand() or command.poll() is not None, 120, "the pause", command)
        assert self._stand(), command.text()

    def _stand(self) -> bool:
        there = self.marks.with_suffix(".reached")
        return there.exists() and len(there.read_text().splitlines()) >= self.processes

    def go(self) -> None:
        """Let it go on."""
        self.marks.with_suffix(".go").touch()


def signalled(place: Place, name: str, group: bool, *arguments: str, **more: Any) -> Answer:
    """Send a signal in the middle of the sixth step, and return how the command ended."""
    pause = Pause(place, processes=2 if arguments[:2] == SWEEP[:2] else 1)
    environment = in_step(6, action=pause.action)
    with place.start(*arguments, **environment, **more) as command:
        pause.reached(command)
        command.send(getattr(signal, name), group)
        # The command may take the signal while it is held, and nothing is sent twice.
        time.sleep(0.3)
        pause.go()
        return command.wait(PROMPT)


@cache
def calm(folder: Path, *arguments: str) -> Place:
    """Return a place where the command was typed and nothing happened."""
    there = fault_place(folder / f"calm{len(arguments)}")
    assert there.train(*arguments).code == 0
    return there


def assert_continues(place: Place, sweep: str, *arguments: str) -> None:
    """Repeat the command, and compare all runs with those of a place where nothing happened."""
    answer = place.train(*arguments)
    assert answer.code == 0, answer.text
    whole = calm(place.folder.parent, *arguments)
    for run, other in zip(place.runs(sweep), whole.runs(sweep), strict=True):
        assert_same(run, other, saved=False)
    assert place.litter() == []


@pytest.mark.parametrize("name", ["SIGHUP", *map(slow, ("SIGTERM", "SIGINT", "SIGUSR1"))])
def test_a_signal_to_a_single_run_saves_it(place: Place, name: str) -> None:
    answer = signalled(place, name, False)
    assert answer.code == CODES[name], answer.text
    assert "Stopped. The same command continues runs/single/" in answer.text
    assert result(place.run())["status"] == "interrupted"
    assert [p.name for p in (place.run() / "checkpoints").iterdir() if "06" in p.name]
    assert_continues(place, "single")


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("SIGHUP", True),
        slow("SIGTERM", True),
        slow("SIGINT", False),
        slow("SIGINT", True),
        slow("SIGTERM", False),
        slow("SIGUSR1", False),
        slow("SIGUSR1", True),
    ],
)
def test_a_signal_to_a_sweep_saves_all_that_train_and_the_same_command_goes_on(
    place: Place, name: str, group: bool
) -> None:
    """A dropped ssh sends SIGHUP to all processes."""
    answer = signalled(place, name, group, *SWEEP)
    assert answer.code == CODES[name], answer.text
    assert "Stopped. The same command continues" in answer.text
    assert "Traceback" not in answer.text
    for run in place.runs("grid"):
        assert result(run)["status"] == "interrupted"
        assert [path.name for path in (run / "checkpoints").glob("*06.ckpt")]
    assert_continues(place, "grid", *SWEEP)


def test_a_signal_to_one_run_of_a_sweep_stops_all(place: Place) -> None:
    pause = Pause(place, processes=2)
    environment = in_step(6, action=pause.action)
    # The other one is still at work when the sweep hears of the signal.
    with place.start(*SWEEP, "trainer.max_steps=3000", **environment) as command:
        pause.reached(command)
        [first, _] = pause.marks.with_suffix(".reached").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        pause.go()
        answer = command.wait(PROMPT)
    assert answer.code == CODES["SIGTERM"], answer.text
    assert [result(run)["status"] for run in place.runs("grid")] == ["interrupted"] * 2
    # What the sweep asked to stop is saved as well.
    assert all(list((run / "checkpoints").glob("*.ckpt")) for run in place.runs("grid"))


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("SIGTERM", ("faults.validate", SECOND_VALIDATION)),
        slow("SIGINT", ("faults.validate", LAST_VALIDATION)),
        slow("SIGTERM", ("faults.validate", LAST_VALIDATION)),
        ("SIGINT", ("os.rename", "*/train.bin")),
        slow("SIGTERM", ("os.rename", "*/train.bin")),
        ("SIGTERM", ("os.rename", "*/step-00000012.ckpt")),
    ],
)
def test_a_signal_outside_the_steps_is_told_to_the_shell(
    place: Place, name: str, point: tuple[str, str]
) -> None:
    """In the last validation, while data is prepared, and while the last checkpoint is written."""
    pause = Pause(place)
    environment = fault(*point, 1, pause.action)
    options = ("data.eval_batch_size=1",)
    with place.start(*options, **environment) as command:
        pause.reached(command)
        command.send(getattr(signal, name))
        time.sleep(0.3)
        pause.go()
        answer = command.wait(PROMPT)
    if answer.code == 0:
        # It was as good as over, and is.
        assert result(place.run())["status"] == "done"
    else:
        assert answer.code == CODES[name], answer.text
        assert not [r for r in place.runs("single") if result_of(r) not in (None, "interrupted")]
    assert_continues(place, "single", *options)


def result_of(run: Path) -> str | None:
    return result(run)["status"] if (run / "result.json").exists() else None


@pytest.mark.parametrize("name", [*map(slow, ("SIGINT", "SIGTERM"))])
def test_a_signal_between_two_runs_stops_the_sweep(place: Place, name: str) -> None:
    sweep = (*GRID, "resources.at_once=1")
    pause = Pause(place)
    environment = fault("os.remove", "*/swiglu-s0*/result.json", 1, pause.action)
    with place.start(*sweep, **environment) as command:
        pause.reached(command)
        command.send(getattr(signal, name))
        time.sleep(0.3)
        pause.go()
        answer = command.wait(PROMPT)
    assert answer.code == CODES[name], answer.text
    assert "Stopped. The same command continues" in answer.text
    assert "Traceback" not in answer.text
    assert result(place.run("grid", "relu*"))["status"] == "done"
    assert_continues(place, "grid", *sweep)


@pytest.mark.parametrize("sweep", [slow(()), SWEEP])
def test_a_second_ctrl_c_ends_it_at_once(place: Place, sweep: tuple[str, ...]) -> None:
    pause = Pause(place)
    environment = in_step(6, action=pause.action)
    with place.start(*sweep, **environment) as command:
        pause.reached(command)
        command.send(signal.SIGINT, group=True)
        time.sleep(1.5)
        assert command.poll() is None, "the first Ctrl-C waits for the step to end"
        command.send(signal.SIGINT, group=True)
        assert command.wait(AT_ONCE).code == 130
        until(lambda: command.left() == [], AT_ONCE, "its processes to end")
    assert_continues(place, "grid" if sweep else "single", *sweep)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal(place: Place) -> None:
    """The terminal sends the signal to every process of the sweep by itself."""
    pause = Pause(place)
    with terminal() as (keyboard, name):
        environment = in_step(6, action=pause.action)
        with place.start(*SWEEP, **environment, terminal=name) as command:
            pause.reached(command)
            os.write(keyboard, b"\x03")
            time.sleep(0.3)
            pause.go()
            answer = command.wait(PROMPT)
    assert answer.code == 130, answer.text
    assert "Stopped. The same command continues" in answer.text
    assert result(place.run("grid", "relu*"))["status"] == "interrupted"
    assert_continues(place, "grid", *SWEEP)


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """Open a terminal; what is shown on it is thrown away."""
    keyboard, screen = pty.openpty()

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(keyboard, 1024):
                pass

    threading.Thread(target=read, daemon=True).start()
    try:
        yield keyboard, os.ttyname(screen)
    finally:
        os.close(screen)
        os.close(keyboard)


def test_a_sweep_killed_alone_leaves_no_training_behind(place: Place) -> None:
    pause = Pause(place)
    environment = in_step(6, action=pause.action)
    with place.start(*SWEEP, **environment) as command:
        pause.reached(command)
        assert len(command.left()) > 1
        command.send(signal.SIGKILL)
        assert command.wait(AT_ONCE).code == 137
        until(lambda: command.left() == [], AT_ONCE, "its training to end by itself")
    assert_continues(place, "grid", *SWEEP)


def test_a_training_killed_alone_is_recorded_whatever_was_recorded_before(place: Place) -> None:
    """An interruption first, then a kill: what is true now is what counts."""
    assert signalled(place, "SIGTERM", False, *SWEEP).code == CODES["SIGTERM"]
    answer = place.train(*SWEEP, **in_step(2, action="SIGKILL"))
    assert answer.code == 1
    relu = result(place.run("grid", "relu*"))
    assert relu["status"] == "failed", answer.text
    assert "signal 9" in relu["error"]["message"]
    assert place.train(*SWEEP).code == 0


def test_no_old_result_stands_in_a_run_that_goes_on(place: Place) -> None:
    assert signalled(place, "SIGTERM", False).code == CODES["SIGTERM"]
    killed = place.train(**in_step(2))
    assert killed.code == 137
    assert not (place.run() / "result.json").exists()


@pytest.mark.parametrize(
    ("end", "group"),
    [slow("SIGTERM", False), slow("SIGINT", True), slow("SIGKILL", True)],
)
def test_wandb_is_closed_and_goes_on_under_the_same_id(place: Place, end: str, group: bool) -> None:
    options = ("logger=wandb", "logger.mode=offline")
    if end in CODES:
        assert signalled(place, end, group, *options).code == CODES[end]
        [log] = logs(place.run())
        assert exit_code(log) == 1
    else:
        assert place.train(*options, **in_step(7)).code == 137
        [log] = logs(place.run())
    before = (place.run() / "wandb_id").read_text()
    answer = place.train(*options)
    assert answer.code == 0, answer.text
    assert (place.run() / "wandb_id").read_text() == before
    assert len(logs(place.run())) == 2
    assert all(before.split()[0] in path.name for path in logs(place.run()))
    assert exit_code(max(logs(place.run()))) == 0
    sent = [step for path in logs(place.run()) for step in training_steps(path)]
    assert sorted(sent) == list(range(1, 13))


def logs(run: Path) -> list[Path]:
    return sorted(run.glob("wandb/offline-run-*/*.wandb"))


def training_steps(log: Path) -> list[int]:
    from lm_experiments.training.wandb.transaction_log import logged_keys

    return [step for step, keys in logged_keys(log).items() if "train/loss" in keys]


def exit_code(log: Path) -> int | None:
    """Return the exit code a W&B log was closed with, None where it was not."""
    from wandb.proto import wandb_internal_pb2

    from lm_experiments.training.wandb.transaction_log import _records

    for data in _records(log.read_bytes()):
        record = vars(wandb_internal_pb2)["Record"]()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "exit":
            return int(record.exit.exit_code)
    return None


@pytest.mark.slow
def test_a_sweep_with_wandb_leaves_nothing_behind_after_a_kill_of_its_main_process(
    place: Place,
) -> None:
    sweep = (*SWEEP, "logger=wandb", "logger.mode=offline")
    pause = Pause(place)
    environment = in_step(6, action=pause.action)
    with place.start(*sweep, **environment) as command:
        pause.reached(command)
        command.send(signal.SIGKILL)
        until(lambda: command.left() == [], 15, "everything to end by itself")
    answer = place.train(*sweep)
    assert answer.code == 0, answer.text
    for run in place.runs("grid"):
        sent = [step for path in logs(run) for step in training_steps(path)]
        assert sorted(sent) == list(range(1, 13))


@pytest.mark.slow
def test_a_single_run_signalled_as_typed(place: Place) -> None:
    answer = signalled(place, "SIGTERM", True, cold=True)
    assert answer.code == 143, answer.text
    assert result(place.run())["status"] == "interrupted"
    answer = place.train(cold=True)
    assert answer.code == 0, answer.text
    assert_same(place.run(), calm(place.folder.parent).run(), saved=False)
