"""How a run ended, from its processes and its result: what is recorded, printed and returned."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lm_experiments.launch.endings import (
    ELSEWHERE,
    LOST,
    LOST_RETRIES,
    Attempts,
    Ending,
    MemoryKills,
    ProcessExit,
    ending_of,
    failed,
    finish,
)
from lm_experiments.launch.task import Policy
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.results import Result, RunError, read_result, write_result

KILLED = ProcessExit(-signal.SIGKILL)
DONE = Result("done", "arm", 3, outcome="ok", val_loss=1.5, steps=4, seconds=2.0)
FAILED = Result("failed", "arm", 3, error=RunError("ValueError", "bad"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory, as far as its ending needs it."""
    directory = tmp_path / "arm-s3"
    directory.mkdir()
    (directory / "config.yaml").write_text("arm: arm\nseed: 3\nmodel: {norm: {name: mine}}\n")
    write_identity(directory, Identity("c" * 64, "d" * 64))
    return directory


@pytest.mark.parametrize(
    ("exit", "result", "signalled", "status", "exit_status"),
    [
        (ProcessExit(0, finished=True), DONE, None, "done", 0),
        (ProcessExit(3, finished=True), DONE, None, "done", 0),
        (ProcessExit(0), None, None, "failed", 1),
        (ProcessExit(1), FAILED, None, "failed", 1),
        (ProcessExit(143), FAILED, None, "failed", 1),
        (KILLED, None, None, "failed", 1),
        (ProcessExit(143), None, None, "interrupted", 143),
        (ProcessExit(-signal.SIGTERM), None, None, "interrupted", 143),
        (ProcessExit(0, finished=True), DONE, signal.SIGINT, "interrupted", 130),
        (KILLED, None, signal.SIGINT, "interrupted", 130),
    ],
)
def test_an_ending_follows_from_exit_codes_signals_and_the_result(
    exit: ProcessExit,
    result: Result | None,
    signalled: int | None,
    status: str,
    exit_status: int,
    run: Path,
) -> None:
    if result is not None:
        write_result(run, result)
    ending = ending_of(run, exit, signalled=signalled)
    assert (ending.status, ending.exit_status) == (status, exit_status)


@pytest.mark.parametrize(
    ("exit", "message"),
    [
        (ProcessExit(9), "The process ended with exit code 9."),
        (KILLED, "The process was killed by signal 9."),
        (ProcessExit(0, rank=1, processes=2), "The process of rank 1 ended with exit code 0."),
        (
            ProcessExit(-signal.SIGKILL, out_of_memory=True),
            "The process was killed by the kernel for lack of memory; "
            "try a smaller trainer.micro_batch_size.",
        ),
        (ProcessExit(1, error=RunError("ValueError", "no such norm")), "no such norm"),
    ],
)
def test_a_failure_is_recorded_without_the_users_components(
    exit: ProcessExit, message: str, run: Path
) -> None:
    ending = ending_of(run, exit)
    result = read_result(run)
    assert result is not None and result.error is not None
    assert (result.status, result.arm, result.seed) == ("failed", "arm", 3)
    assert (result.config_hash, result.data_hash) == ("c" * 64, "d" * 64)
    assert result.error.message == message
    assert message in ending.text(run)


def test_what_rank_zero_recorded_itself_stands(run: Path) -> None:
    write_result(run, FAILED)
    ending_of(run, ProcessExit(1, error=RunError("RuntimeError", "a connection broke")))
    assert read_result(run) == FAILED


def test_a_failure_that_cannot_be_recorded_is_printed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(directory: Path, result: Result) -> None:
        raise OSError(28, "No space left on device", str(directory / "result.json"))

    monkeypatch.setattr("lm_experiments.launch.endings.write_result", full)
    text = failed(run, RunError("OSError", "disk full.")).text(run)
    assert text.startswith("arm-s3: FAILED: OSError: disk full; ")
    assert text.endswith("result.json: No space left on device.")


def test_a_kill_of_the_kernel_explains_one_run_and_only_since_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = [5]
    monkeypatch.setattr("lm_experiments.launch.endings.out_of_memory_kills", lambda: counted[0])
    kills = MemoryKills()
    assert not kills.explain_one(since=5)
    counted[0] = 6
    assert kills.explain_one(since=5)
    # The neighbour that ended at the same time was killed otherwise.
    assert not kills.explain_one(since=5)
    counted[0] = 7
    assert not kills.explain_one(since=7)
    assert kills.explain_one(since=6)


def test_attempts_are_counted_by_kind() -> None:
    attempts, directory = Attempts(retries=2), Path("run")
    kinds = [Ending(s) for s in ("done", "interrupted", ELSEWHERE)]
    assert not any(attempts.again(directory, ending) for ending in kinds)
    assert [attempts.again(directory, Ending("failed")) for _ in range(3)] == [True, True, False]
    again = [attempts.again(directory, Ending(LOST)) for _ in range(LOST_RETRIES + 1)]
    assert again == [True] * LOST_RETRIES + [False]


def test_a_finished_run_is_printed_and_a_stop_is_obeyed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    going, stopping = (Policy(0, stops, lambda directory: "1 of 2 done") for stops in (False, True))
    write_result(run, DONE)
    finish(run, Ending("done", note="done; its process ended with exit code 3 afterwards."), going)
    assert capsys.readouterr().out.splitlines() == [
        "arm-s3: done; its process ended with exit code 3 afterwards.",
        "arm-s3: ok, validation loss 1.5000 after 4 steps in 2 s",
        "  1 of 2 done",
    ]
    finish(run, Ending(ELSEWHERE), going)
    assert "1 of 2 done" not in capsys.readouterr().out
    finish(run, Ending("failed"), going)
    with pytest.raises(SystemExit) as stop:
        finish(run, Ending("failed"), stopping)
    assert stop.value.code == 1
    with pytest.raises(SystemExit) as stop:
        finish(run, Ending("interrupted", signal.SIGTERM), going)
    assert stop.value.code == 143
