"""Disks that are full or read-only, and memory that runs out: said in a sentence, nothing lost."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import warm_start
from harness.commands import Answer
from harness.faults import fault, fault_place, in_step
from harness.processes import Command, litter, time_limit, until
from harness.runs import assert_same, result, rows

# A checkpoint of the smallest model is some 140 kB; a result and a log are a few.
LEFT_FOR_A_RESULT = 48 << 10
# A save is not begun with less than a megabyte to spare.
LEFT_FOR_A_SAVE = 1300 << 10
# Keeps root from being above the permissions of files.
AS_A_USER = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all"


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with time_limit(240):
        yield


class SmallDisk:
    """Commands whose ``runs`` folder, and a second folder, are small disks of their own.

    Only these commands see the disks; tests look at them through ``runs`` and ``other``. Where the
    tests are root's, the commands still have to heed the permissions of files.
    """

    def __init__(self, folder: Path) -> None:
        mounts = [folder / "runs", folder / "other"]
        for path in mounts:
            path.mkdir(parents=True)
        steps = [f"mount -t tmpfs -o size=20m none '{path}'" for path in mounts]
        server = f"exec {AS_A_USER} '{sys.executable}' '{warm_start.__file__}'"
        shell = " && ".join([*steps, "echo mounted", server])
        self.server = warm_start.WarmStarts(["unshare", "-m", "sh", "-c", shell])
        process = self.server.process
        assert process.stdout is not None
        if process.stdout.readline() != "mounted\n":
            said = process.communicate()[1].strip()
            pytest.skip(f"no disk of its own can be had here: {said}")
        seen = Path(f"/proc/{process.pid}/root")
        self.runs, self.other = (seen / path.relative_to("/") for path in mounts)
        self.place = fault_place(folder, self.server)
        self.start, self.train = self.place.start, self.place.train

    def paused(self, marks: Path, *words: str, **environment: str) -> Command:
        """Type a command, and wait until it has come to a fault that pauses it."""
        command = self.start(*words, **environment)
        until(marks.with_suffix(".reached").exists, 120, "the pause", command)
        return command

    def fill(self, left: int = 0, disk: Path | None = None) -> None:
        """Fill a disk up to some bytes that are left."""
        ballast = (disk or self.runs) / "ballast"
        with ballast.open("ab", buffering=0) as file:
            free = shutil.disk_usage(ballast.parent).free
            while free > left:
                try:
                    free -= file.write(bytes(min(free - left, 1 << 20)))
                except OSError:
                    return

    def make_space(self) -> None:
        """Take away whatever filled a disk."""
        for disk in (self.runs, self.other):
            (disk / "ballast").unlink(missing_ok=True)

    def run(self, name: str) -> Path:
        """Return the only run directory of a sweep."""
        [found] = self.runs.glob(f"{name}/*-s?-*")
        return found

    def litter(self) -> list[str]:
        """Return what was left half-made."""
        return litter(self.runs)

    def close(self) -> None:
        """Give the disks back."""
        self.server.process.communicate()


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path_factory.mktemp("small") / "place")
    yield disk
    disk.close()


@pytest.fixture
def disk(small_disk: SmallDisk) -> Iterator[SmallDisk]:
    yield small_disk
    small_disk.make_space()
    assert not small_disk.place.living()


@pytest.fixture(scope="module")
def whole(small_disk: SmallDisk) -> Path:
    """The run directory of a run that nothing happened to."""
    answer = small_disk.train("name=whole")
    assert answer.code == 0, answer.text
    return small_disk.run("whole")


def error_line(answer: Answer, *words: str) -> None:
    """Assert that a command failed with one line for its reason, which holds some words."""
    assert answer.code in (1, 2), answer.text
    assert "Traceback" not in answer.text, answer.text
    assert len(answer.text.strip().splitlines()) <= 3, answer.text
    for word in words:
        assert word in answer.text.strip().splitlines()[-1], answer.text


def test_a_disk_that_fills_during_a_save_costs_nothing_but_time(
    disk: SmallDisk, whole: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    pause = fault("open", "*step-00000008.ckpt.part", action=f"pause:{marks}")
    with disk.paused(marks, "name=fills", **pause) as command:
        # The space that there was when the save began is gone while it is written.
        disk.fill(LEFT_FOR_A_RESULT)
        marks.with_suffix(".go").touch()
        answer = command.wait(90)
    run = disk.run("fills")
    error = result(run)["error"]
    assert (result(run)["status"], error["type"]) == ("failed", "CheckpointError")
    assert "step-00000008.ckpt could not be written" in error["message"]
    assert "bytes are free there" in error["message"]
    error_line(answer, error["message"])
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000004.ckpt"]
    assert not disk.litter()

    disk.make_space()
    answer = disk.train("name=fills")
    assert answer.code == 0, answer.text
    assert_same(run, whole)


def test_a_save_that_cannot_fit_is_not_begun(disk: SmallDisk, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with disk.paused(marks, "name=fits", **in_step(6, action=f"pause:{marks}")) as command:
        disk.fill(LEFT_FOR_A_RESULT)
        marks.with_suffix(".go").touch()
        answer = command.wait(90)
    message = result(disk.run("fits"))["error"]["message"]
    assert "step-00000008.ckpt could not be written (it needs" in message
    error_line(answer, "bytes are free there")
    assert not disk.litter()


def test_a_disk_without_a_single_byte_left(disk: SmallDisk, whole: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with disk.paused(marks, "name=empty", **in_step(6, action=f"pause:{marks}")) as command:
        disk.fill()
        marks.with_suffix(".go").touch()
        answer = command.wait(90)
    run = disk.run("empty")
    error_line(answer, run.name, "0 bytes are free there")
    assert not (run / "result.json").exists()
    assert not disk.litter()

    disk.make_space()
    answer = disk.train("name=empty")
    assert answer.code == 0, answer.text
    assert_same(run, whole)


def test_a_disk_that_is_full_from_the_start(disk: SmallDisk, whole: Path) -> None:
    disk.fill()
    answer = disk.train("name=start")
    error_line(answer, "runs/start", "No space left on device")
    assert answer.code == 2
    assert not [path for path in disk.runs.glob("start/**/[!.]*") if path.is_file()]
    disk.make_space()
    assert disk.train("name=start").code == 0
    assert_same(disk.run("start"), whole)


def test_the_folder_for_temporary_files_plays_no_role(disk: SmallDisk, whole: Path) -> None:
    disk.fill(disk=disk.other)
    full = str(disk.place.folder / "other")
    answer = disk.train("name=temporary", "logger=wandb", "logger.mode=offline", TMPDIR=full)
    assert answer.code == 0, answer.text
    assert rows(disk.run("temporary")) == rows(whole)
    assert [*disk.run("temporary").glob("wandb/offline-run-*/*.wandb")]
    assert [path.name for path in disk.other.iterdir() if path.is_file()] == ["ballast"]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take the permission to write in a folder away."""
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755)


def cut(disk: SmallDisk, whole: Path, name: str) -> Path:
    """Return a copy of the run in another folder, as a kill after its second save leaves it."""
    run = disk.runs / name / whole.name
    shutil.copytree(whole, run)
    (run / "result.json").unlink()
    (run / "checkpoints" / "step-00000012.ckpt").unlink()
    return run


def test_a_checkpoint_folder_that_is_read_only_fails_the_run_before_its_first_step(
    disk: SmallDisk, whole: Path
) -> None:
    run = cut(disk, whole, "locked")
    before = rows(run)
    with read_only(run / "checkpoints"):
        answer = disk.train("name=locked")
    message = result(run)["error"]["message"]
    assert "checkpoints cannot be written to: Permission denied." in message
    error_line(answer, message)
    assert rows(run) == before
    assert disk.train("name=locked").code == 0
    assert_same(run, whole)


def test_a_run_folder_that_is_read_only_fails_the_run(disk: SmallDisk, whole: Path) -> None:
    run = cut(disk, whole, "sealed")
    before = rows(run)
    with read_only(run):
        answer = disk.train("name=sealed")
    error_line(answer, run.name, "Permission denied")
    assert rows(run) == before
    assert not (run / "result.json").exists()


def test_a_folder_of_runs_that_is_read_only(disk: SmallDisk, whole: Path) -> None:
    with read_only(disk.runs):
        answer = disk.train("name=nowhere")
    assert answer.code == 2
    error_line(answer, "runs/nowhere: Permission denied.")


@pytest.mark.slow
def test_a_sweep_goes_on_where_one_of_its_runs_finds_no_space(disk: SmallDisk) -> None:
    # The second run begins when the first has failed.
    sweep = ("-m", "seed=0,1", "name=sweep", "resources.at_once=1")
    disk.fill(LEFT_FOR_A_SAVE)
    with disk.start(*sweep) as command:
        until(lambda: [*disk.runs.glob("sweep/*-s0-*/result.json")], 90, "the failure", command)
        disk.make_space()
        answer = command.wait(60)
    failed, other = (result(run) for run in sorted(disk.runs.glob("sweep/*-s?-*")))
    assert (answer.code, failed["status"], other["status"]) == (1, "failed", "done")
    assert answer.text.count(failed["error"]["message"]) >= 2
    answer = disk.train(*sweep)
    assert answer.code == 0, answer.text
    assert "1 done already, 1 to train" in answer.text


@pytest.mark.slow
def test_a_sweep_goes_on_where_the_folder_of_one_of_its_runs_is_read_only(
    disk: SmallDisk, whole: Path
) -> None:
    run = cut(disk, whole, "some")
    with read_only(run):
        answer = disk.train("-m", "seed=0,1", "name=some")
    assert answer.code == 1
    assert "Traceback" not in answer.text, answer.text
    assert f"{run.name}/metrics.jsonl'" in answer.text
    assert f"{run.name}/result.json: Permission denied." in answer.text
    assert "1 done, 1 failed" in answer.text
    assert not (run / "result.json").exists()


@pytest.mark.slow
def test_a_sweep_on_a_full_disk_is_one_sentence(disk: SmallDisk) -> None:
    disk.fill()
    answer = disk.train("-m", "seed=0,1", "name=full")
    assert answer.code == 2
    assert "Traceback" not in answer.text, answer.text
    assert "error: runs/full" in answer.text
    assert "No space left on device" in answer.text


GREEDY = '''
import multiprocessing, os, resource
import torch
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

def leave(size):
    """Let a run's process have so much more memory than it has."""
    if multiprocessing.parent_process() is None:
        # A sweep times a few steps in its main process, where the limit would stay.
        raise RuntimeError("only a run's process is short of memory")
    used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + size, resource.RLIM_INFINITY))

@register("norm", "greedy", NormOptions)
class Greedy(RMSNorm):
    """RMSNorm whose tensors do not fit."""
    def forward(self, x):
        leave(256 << 20)
        torch.empty(1 << 30)

@register("norm", "hoarding", NormOptions)
class Hoarding(RMSNorm):
    """RMSNorm whose Python objects do not fit."""
    def forward(self, x):
        leave(64 << 20)
        bytearray(1 << 30)
'''


def test_memory_that_runs_out_fails_the_run_and_no_other(train: Callable[..., Any]) -> None:
    Path("greedy.py").write_text(GREEDY)
    answer = train("-m", "norm=greedy,hoarding,rmsnorm", "code_paths=[greedy.py]", "name=memory")
    assert answer.code == 1
    found = {r["arm"]: r for r in map(result, sorted(Path("runs/memory").glob("[!.]*-s0-*")))}
    assert found["rmsnorm"]["status"] == "done"
    for arm in ("greedy", "hoarding"):
        assert found[arm]["status"] == "failed"
        message = found[arm]["error"]["message"]
        assert message.startswith("Out of memory; try a smaller trainer.micro_batch_size.")
        assert len(message.splitlines()) == 1, message
    assert answer.out.count("Out of memory; try a smaller trainer.micro_batch_size") >= 2
