"""Training commands as processes: started, signalled, waited for, and nothing of them left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.commands import ROOT, Answer, completed, script
from harness.warm_start import WarmStarts

# The environment variable by which processes that stem from a test are known.
MARK = "LM_EXPERIMENTS_TEST_MARK"
# Variables that would reach into a command: credentials, and a scheduler that the tests run under.
DROPPED = ("WANDB_", "COV_", "SLURM_", "RAY_", "CUDA_")
TEXT = "".join(f"line {i % 7} of a short text, word {i}\n" for i in range(120))
# What a kill may leave for good: locks. Other hidden or half-made files are litter.
LOCK = re.compile(r"^\..*lock$|\.lock$")
LITTER = re.compile(r"^\.|\.part$|partial|\.tmp")


def slow(*values: Any) -> Any:
    """Return the values of a parametrised test, for which it is slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


class Place:
    """A folder to type training commands in, with a text and a cache of its own.

    Args:
        defaults: the words of each command, unless it sets them itself.
        files: further files of the folder, text by relative path.
        warm: where commands are forked from; None starts Python anew for each.
        environment: further variables.
    """

    def __init__(
        self,
        folder: Path,
        defaults: Collection[str],
        files: Mapping[str, str] | None = None,
        warm: WarmStarts | None = None,
        **environment: str,
    ) -> None:
        self.folder = folder
        self.defaults = defaults
        self.warm = warm
        self.mark = uuid.uuid4().hex
        for name, text in {"words.txt": TEXT, **(files or {})}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(DROPPED)},
            "LM_EXPERIMENTS_CACHE": str(folder / "cache"),
            "PYTHONPATH": f"{folder / 'hooks'}{os.pathsep}{ROOT}",
            MARK: self.mark,
            **environment,
        }
        # Commands that ran in this process leave it behind; it asks for tracebacks.
        self.environment.pop("HYDRA_FULL_ERROR", None)

    def start(
        self,
        *words: str,
        cold: bool = False,
        terminal: str | None = None,
        beside: Collection[int] = (),
        **environment: str,
    ) -> Command:
        """Start ``scripts/train.py``.

        Args:
            words: its arguments.
            cold: start Python anew, as a user does, even where the place has a warm start.
            terminal: the device of the terminal that it is typed in, which needs a cold start.
            beside: marked processes that do not belong to the command.
            environment: further variables.
        """
        output = self.folder / f"output-{uuid.uuid4().hex[:8]}.txt"
        arguments = [str(script("train")), *completed(words, self.defaults)]
        variables = {**self.environment, **environment}
        if self.warm is None or cold or terminal:
            pid, poll = _start(arguments, self.folder, output, variables, terminal)
        else:
            pid, poll = self.warm.start(arguments, self.folder, output, variables)
        return Command(self, pid, poll, output, beside)

    def train(self, *words: str, seconds: float = 150, **more: Any) -> Answer:
        """Type a command and wait for its end; nothing of it may be left running."""
        with self.start(*words, **more) as command:
            return command.wait(seconds)

    def run(self, sweep: str = "single", pattern: str = "*") -> Path:
        """Return the only run directory of a sweep that matches."""
        [found] = [path for path in self.runs(sweep) if path.match(pattern)]
        return found

    def runs(self, sweep: str) -> list[Path]:
        """Return the run directories of a sweep by name."""
        folder = self.folder / "runs" / sweep
        return sorted(path for path in folder.glob("[!.]*") if path.is_dir())

    def litter(self) -> list[str]:
        """Return the files and folders that somebody forgot to take away."""
        return [name for top in ("runs", "cache") for name in litter(self.folder / top)]

    def living(self, beside: Collection[int] = ()) -> list[int]:
        """Return the processes that stem from this place's commands and have not ended."""
        return [pid for pid in _processes() if pid not in beside and _is_marked(pid, self.mark)]

    def kill(self, beside: Collection[int] = ()) -> None:
        """End what is left of this place's commands."""
        _kill(self.living(beside))


@dataclass
class Command:
    """A command that runs in a session of its own; leaving its ``with`` block leaves no process.

    Attributes:
        pid: its main process.
        poll: returns the main process's exit code, None while it runs.
        output: the file of what it prints.
        beside: marked processes that do not belong to it.
    """

    place: Place
    pid: int
    poll: Callable[[], int | None]
    output: Path
    beside: Collection[int] = ()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            with contextlib.suppress(AssertionError):
                until(lambda: not self.left(), 30, "its processes to end")
        left = self.left()
        names = [_words(pid) for pid in left]
        _kill(left)
        until(lambda: self.poll() is not None, 10, "its process to be gone")
        if kind is None:
            assert not left, f"these processes were left behind: {names}"

    def left(self) -> list[int]:
        """Return the command's processes that are still there, itself included."""
        in_session = [pid for pid in _processes() if _session(pid) == self.pid]
        return sorted({*in_session, *self.place.living(self.beside)})

    def wait(self, seconds: float) -> Answer:
        """Wait for the end; where it takes longer than it may, fail."""
        until(lambda: self.poll() is not None, seconds, "the command to end", self)
        code = self.poll()
        assert code is not None
        return Answer(code if code >= 0 else 128 - code, self.text())

    def text(self) -> str:
        """Return what it has printed so far."""
        return self.output.read_text(errors="replace")

    def send(self, number: int, group: bool = False) -> None:
        """Send a signal to its main process, or as a terminal does to all of its group."""
        if group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)


def until(
    true: Callable[[], object], seconds: float, what: str, command: Command | None = None
) -> None:
    """Wait until something is true; fail with ``what`` where that takes too long."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            printed = f"; it printed:\n{command.text()}" if command else ""
            raise AssertionError(f"waited {seconds:g} s for {what}{printed}")
        time.sleep(0.002)


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Fail what takes longer than this, wherever it hangs."""

    def fail(number: int, frame: Any) -> None:
        raise TimeoutError(f"the test took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def litter(folder: Path) -> list[str]:
    """Return the files below a folder that somebody forgot to take away; W&B's are its own."""
    return [
        str(path.relative_to(folder.parent))
        for path in folder.rglob("*")
        if "wandb" not in path.parts and LITTER.search(path.name) and not LOCK.search(path.name)
    ]


def _start(
    arguments: list[str],
    folder: Path,
    output: Path,
    environment: Mapping[str, str],
    terminal: str | None,
) -> tuple[int, Callable[[], int | None]]:
    """Start Python as a shell does; return its process id and how to ask for its exit code."""

    def prepare() -> None:
        # A shell that starts pytest in the background has it ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if terminal is not None:
            # The first terminal that a session's leader opens becomes the session's.
            os.close(os.open(terminal, os.O_RDWR))

    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,
        )
    return process.pid, process.poll


def _processes() -> list[int]:
    """Return all processes that have not ended; a zombie has."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _stat(pid)[:1] not in ([], ["Z"], ["X"])]


def _is_marked(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _words(pid: int) -> str:
    """Return how a process was started."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if fields else -1


def _stat(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
