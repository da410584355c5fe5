"""Kill -9 of everything at chosen points, then the same command: as if nothing had happened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.faults import fault, fault_place, in_step
from harness.processes import Command, Place, slow, time_limit, until
from harness.runs import assert_same, result

KILLED = 128 + 9
# With dropout, so that a resumed run has to drop what the unbroken one dropped.
VARIANTS = {
    "plain": ("model.dropout=0.1",),
    "accumulating": ("model.dropout=0.1", "trainer.micro_batch_size=1"),
}
FORWARDS = {"plain": 1, "accumulating": 4}
# Twelve steps, a checkpoint every four and at the end, a validation every five and at the end.
FILE_POINTS = {
    "while data is prepared": fault("os.rename", "*/val.bin"),
    "before prepared data has its place": fault("os.rename", "*/cache/text-bytes-*"),
    "before the configuration is there": fault("os.rename", "*/config.yaml"),
    "before the identity is there": fault("os.rename", "*/identity.json"),
    "before the first checkpoint is there": fault("os.rename", "*/step-00000004.ckpt"),
    "before the second checkpoint is there": fault("os.rename", "*/step-00000008.ckpt"),
    "before an old checkpoint goes": fault("os.remove", "*/step-00000004.ckpt"),
    "before the weights alone are there": fault("os.rename", "*/step-00000012.ckpt", 2),
    "before the last but one goes": fault("os.remove", "*/step-00000008.ckpt"),
    "before the result is there": fault("os.rename", "*/result.json"),
}
OFTEN = (
    "while data is prepared",
    "before the first checkpoint is there",
    "before an old checkpoint goes",
    "before the result is there",
)
# Two runs at once, on any machine.
SWEEP = ("-m", "ffn=relu,swiglu", "seed=0,1,2", "name=grid", "model.dropout=0.1")
SWEEP += ("resources.cpus=0.5", "resources.at_once=2")
# What a table holds of measured time, by the columns' names.
SPEED = ("tokens/s", "tokens_per_second", "seconds", "time")


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with time_limit(300):
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each variant that nothing happened to."""
    found = {}
    for variant, options in VARIANTS.items():
        there = fault_place(tmp_path_factory.mktemp(variant))
        answer = there.train(*options)
        assert answer.code == 0, answer.text
        found[variant] = there.run()
    return found


def kill_and_repeat(place: Place, options: tuple[str, ...], environment: dict[str, str]) -> Path:
    """Let a fault kill a run, repeat the command, and return what it left."""
    killed = place.train(*options, **environment)
    assert killed.code == KILLED, f"nothing was killed: {killed.text}"
    again = place.train(*options)
    assert again.code == 0, again.text
    return place.run()


@pytest.mark.parametrize(
    ("variant", "step"),
    [("plain", 1), slow("plain", 7), slow("accumulating", 1), ("accumulating", 7)],
)
def test_a_run_killed_in_a_step_ends_as_if_it_had_not_been(
    place: Place, unbroken: dict[str, Path], variant: str, step: int
) -> None:
    environment = in_step(step, FORWARDS[variant])
    run = kill_and_repeat(place, VARIANTS[variant], environment)
    assert_same(run, unbroken[variant])
    assert place.litter() == []


@pytest.mark.parametrize("call", [2, 5, 8])
def test_a_run_killed_in_a_validation_ends_as_if_it_had_not_been(
    place: Place, unbroken: dict[str, Path], call: int
) -> None:
    run = kill_and_repeat(place, VARIANTS["plain"], fault("faults.validate", call))
    assert_same(run, unbroken["plain"])
    assert place.litter() == []


@pytest.mark.parametrize("point", [p if p in OFTEN else slow(p) for p in FILE_POINTS])
def test_a_run_killed_between_a_file_and_its_name_ends_as_if_it_had_not_been(
    place: Place, unbroken: dict[str, Path], point: str
) -> None:
    run = kill_and_repeat(place, VARIANTS["plain"], FILE_POINTS[point])
    assert_same(run, unbroken["plain"])
    assert place.litter() == []


def test_half_a_checkpoint_is_not_taken_for_one(place: Place, unbroken: dict[str, Path]) -> None:
    options = VARIANTS["plain"]
    point = FILE_POINTS["before the second checkpoint is there"]
    assert place.train(*options, **point).code == KILLED
    [part] = (place.run() / "checkpoints").glob(".*.part")
    assert part.stat().st_size > 1000
    os.truncate(part, part.stat().st_size // 2)
    answer = place.train(*options)
    assert answer.code == 0, answer.text
    assert_same(place.run(), unbroken["plain"])
    assert place.litter() == []


@pytest.mark.slow
def test_a_run_may_be_killed_again_while_it_takes_up_where_it_was(
    place: Place, unbroken: dict[str, Path]
) -> None:
    options = VARIANTS["plain"]
    for environment in (
        in_step(7),
        fault("os.rename", "*/metrics.jsonl"),
        fault("faults.train", 2),
        fault("os.rename", "*/step-00000008.ckpt"),
        fault("os.rename", "*/step-00000012.ckpt"),
    ):
        killed = place.train(*options, **environment)
        assert killed.code == KILLED, killed.text
    answer = place.train(*options)
    assert answer.code == 0, answer.text
    assert_same(place.run(), unbroken["plain"])
    assert place.litter() == []


@pytest.mark.slow
def test_what_earlier_kills_left_is_taken_away(place: Place, unbroken: dict[str, Path]) -> None:
    options = VARIANTS["plain"]
    assert place.train(*options, **in_step(10)).code == KILLED
    run = place.run()
    # A checkpoint asked for by a signal lies at a step that is not saved again.
    (run / "checkpoints" / ".step-00000007.ckpt.part").write_bytes(b"half")
    assert place.train(*options).code == 0
    assert_same(run, unbroken["plain"])
    assert place.litter() == []


def test_a_finished_run_is_not_touched_however_old_its_files_are(place: Place) -> None:
    assert place.train().code == 0
    paths = [path for path in place.run().rglob("*") if path.is_file()]
    for age, path in enumerate(paths):
        os.utime(path, (1e9 + age, 4e9 - age))
    before = contents(place.run())
    answer = place.train()
    assert "Done already" in answer.text
    assert contents(place.run()) == before


@pytest.mark.parametrize("oldest", ["newest", "older"])
def test_the_clock_may_be_set_back_between_two_commands(
    place: Place, unbroken: dict[str, Path], oldest: str
) -> None:
    killed = place.train(*VARIANTS["plain"], **in_step(10))
    assert killed.code == KILLED, killed.text
    older, newest = sorted((place.run() / "checkpoints").glob("*.ckpt"))
    for path, seconds in ((older, 4e9), (newest, 1e9)):
        os.utime(path, (seconds, seconds) if oldest == "newest" else (5e9 - seconds,) * 2)
    # Four steps of three calls are left; more of them would be a start from the older one.
    answer = place.train(*VARIANTS["plain"], **fault("faults.train", 13))
    assert answer.code == 0, "it went on from the older checkpoint"
    assert_same(place.run(), unbroken["plain"])


@pytest.mark.slow
def test_the_command_as_it_is_typed(place: Place, unbroken: dict[str, Path]) -> None:
    killed = place.train(*VARIANTS["plain"], **in_step(7), cold=True)
    assert killed.code == KILLED, killed.text
    answer = place.train(*VARIANTS["plain"])
    assert answer.code == 0, answer.text
    assert_same(place.run(), unbroken["plain"])
    assert place.litter() == []


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below a folder with its content and its time."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def finished(place: Place) -> dict[str, dict[str, tuple[bytes, int]]]:
    runs = [run for run in place.runs("grid") if (run / "result.json").exists()]
    return {run.name: contents(run) for run in runs}


def without_speed(text: str, separator: str) -> list[list[str]]:
    """Return a table's cells without those that measure time; columns go by their header."""
    kept: list[int] = []
    lines = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(separator)]
        if not kept and len(cells) > 3:
            kept = [i for i, cell in enumerate(cells) if not _measures(cell)]
        lines.append([cells[i] for i in kept] if len(cells) > 3 else cells)
    return lines


def _measures(header: str) -> bool:
    return any(word in header.lower() for word in SPEED)


@pytest.fixture(scope="module")
def whole_sweep(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Six runs that nothing happened to."""
    there = fault_place(tmp_path_factory.mktemp("whole"))
    answer = there.train(*SWEEP)
    assert answer.code == 0, answer.text
    return there


def assert_same_sweep(place: Place, whole: Place) -> None:
    names = [run.name for run in whole.runs("grid")]
    assert len(names) == 6
    assert [run.name for run in place.runs("grid")] == names
    for one, other in zip(place.runs("grid"), whole.runs("grid"), strict=True):
        assert_same(one, other)
    for name, separator in (("table.md", "|"), ("table.csv", ",")):
        tables = [(p.folder / "runs" / "grid" / name).read_text() for p in (place, whole)]
        one, other = (without_speed(table, separator) for table in tables)
        assert one == other
        assert len(one[0]) < len(tables[0].splitlines()[0].split(separator)) or name == "table.md"
    assert place.litter() == []


@pytest.mark.slow
def test_a_sweep_killed_twice_is_the_sweep_that_was_not(place: Place, whole_sweep: Place) -> None:
    """Once in the middle of the second run, once before the fifth, each time beside another."""
    point = fault("os.rename", "*relu-s1*/step-00000008.ckpt")
    killed = place.train(*SWEEP, **point)
    assert killed.code == KILLED, killed.text
    first = finished(place)
    assert len(first) <= 1
    killed = place.train(*SWEEP, **fault("os.remove", "*swiglu-s1*/result.json"))
    assert killed.code == KILLED, killed.text
    second = finished(place)
    assert len(second) in (3, 4)
    answer = place.train(*SWEEP)
    assert answer.code == 0, answer.text
    last = finished(place)
    assert first.items() <= second.items() <= last.items()
    assert_same_sweep(place, whole_sweep)


def test_a_sweep_whose_record_was_being_written_goes_on(place: Place) -> None:
    sweep = ("-m", "seed=0,1", "name=grid", "trainer.max_steps=2")
    killed = place.train(*sweep, **fault("os.rename", "*/sweep.json"))
    assert killed.code == KILLED, killed.text
    answer = place.train(*sweep)
    assert answer.code == 0, answer.text
    assert len(finished(place)) == 2
    assert place.litter() == []


@pytest.mark.parametrize(
    ("file", "action", "says"),
    [("checkpoints/*", "exit:3", "exit code 3"), slow("metrics.jsonl", "sys.exit", "SystemExit")],
)
def test_a_run_that_leaves_without_a_word_is_recorded_and_the_others_run(
    place: Place, file: str, action: str, says: str
) -> None:
    sweep = ("-m", "ffn=relu,swiglu,gelu", "name=grid")
    # The sweep looks at the rows and the log of a run that died, and would leave too.
    environment = fault("open", f"*/swiglu-s0*/{file}", 1, action)
    answer = place.train(*sweep, **environment)
    assert answer.code == 1, answer.text
    outcomes = {result(run)["arm"]: result(run) for run in place.runs("grid")}
    assert [outcomes[arm]["status"] for arm in ("relu", "gelu")] == ["done", "done"]
    left = outcomes["swiglu"]
    assert left["status"] == "failed"
    assert says in left["error"]["message"]
    assert "swiglu-s0" in answer.text
    assert place.train(*sweep).code == 0
    assert result(place.run("grid", "swiglu*"))["status"] == "done"


def test_a_component_that_ends_a_single_run_has_failed_it(place: Place) -> None:
    environment = fault("faults.train", "5", 1, "sys.exit")
    answer = place.train(**environment)
    assert answer.code == 1, answer.text
    assert result(place.run())["status"] == "failed"
    assert "FAILED: SystemExit" in answer.text
    assert place.train().code == 0


# The process of a run ends in an error when its result is written and everything is closed.
LAST_WORD = """
import multiprocessing, os
leave = os._exit
os._exit = lambda code: leave(3 if multiprocessing.parent_process() else code)
"""


def test_what_is_done_stays_done_whatever_its_process_does_afterwards(place: Place) -> None:
    (place.folder / "last.py").write_text(LAST_WORD)
    sweep = ("-m", "seed=0,1", "name=grid", "code_paths=[watched.py,last.py]", "retries=1")
    answer = place.train(*sweep)
    assert answer.code == 0, answer.text
    assert [result(run)["status"] for run in place.runs("grid")] == ["done", "done"]
    assert answer.text.count("done; its process ended with exit code 3 afterwards.") == 2
    assert "trying again" not in answer.text


def test_two_sweeps_started_at_once_share_the_work(place: Place, whole_sweep: Place) -> None:
    with place.start(*SWEEP) as one, place.start(*SWEEP) as other:
        answers = [both_ended(one), both_ended(other)]
    assert {code for code, _ in answers} <= {0, 1}
    assert any("done, 0 failed" in text for _, text in answers), answers
    # Each run was trained by one process, once.
    for run in place.runs("grid"):
        log = (run / "train.log").read_text()
        assert log.count(f" trains {run.name}") == 1, log
    assert place.train(*SWEEP).code == 0
    assert_same_sweep(place, whole_sweep)


def both_ended(command: Command) -> tuple[int, str]:
    until(lambda: command.poll() is not None, 180, "a sweep to end", command)
    answer = command.wait(1)
    return answer.code, answer.text
