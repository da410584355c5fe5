"""Real command lines for fault injection: started, stopped at a chosen point, accounted for."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from command_lines import MARK, ROOT, SMALL, completed, is_marked
from warm_server import warm

SCRIPT = ROOT / "scripts" / "train.py"
TINY = completed(
    (
        "norm=watched",
        "code_paths=[watched.py]",
        "data.path=words.txt",
        "data.batch_size=4",
        "trainer.max_steps=12",
        "trainer.val_every=5",
        "trainer.checkpoint_every=4",
    ),
    SMALL,
)
# A norm that computes what RMSNorm does, and tells the fault hook of every call.
WATCHED = '''
import multiprocessing
import sys
import torch
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

CALLS = {True: 0, False: 0}

def planning():
    """Return whether this is a sweep's main process, which times a few steps beforehand."""
    return "-m" in sys.argv and multiprocessing.parent_process() is None

@register("norm", "watched", NormOptions)
class Watched(RMSNorm):
    """RMSNorm that can be interrupted."""
    def forward(self, x):
        training = torch.is_grad_enabled()
        if not planning():
            CALLS[training] += 1
            sys.audit("faults.train" if training else "faults.validate", CALLS[training])
        return super().forward(x)
'''
# One layer with norms before attention, feed-forward and head.
CALLS_PER_FORWARD = 3
# Loaded by every Python process of a command: what FAULT says happens at the event it names.
HOOK = """
import fnmatch, os, signal, sys, time

def install(fault):
    wanted, pattern, count, action = fault.split("|")
    seen = 0

    def strike():
        if action.startswith("pause:"):
            marks = action.removeprefix("pause:")
            open(marks + ".reached", "w").close()
            for _ in range(6000):
                time.sleep(0.005)
                if os.path.exists(marks + ".go"):
                    return
        elif action == "group":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        elif action.startswith("exit:"):
            os._exit(int(action.removeprefix("exit:")))
        elif action == "sys.exit":
            sys.exit()
        else:
            os.kill(os.getpid(), getattr(signal, action))

    def hook(event, args):
        nonlocal seen
        if event != wanted:
            return
        subject = str(args[1] if event == "os.rename" else args[0])
        if fnmatch.fnmatchcase(subject, pattern):
            seen += 1
            if seen == int(count):
                strike()

    sys.addaudithook(hook)

if os.environ.get("FAULT"):
    install(os.environ["FAULT"])
"""
# What a kill may leave for good: locks. Other hidden or half-made files are litter.
LOCK = re.compile(r"^\..*lock$|\.lock$")
LITTER = re.compile(r"^\.|\.part$|partial|\.tmp")
TIMING = ("seconds", "tokens_per_second", "peak_memory_bytes")


def slow(*values: Any) -> Any:
    """Return the values of a parametrised test, for which it is slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def fault(event: str, pattern: object, count: int = 1, action: str = "group") -> dict[str, str]:
    """Return the environment in which ``action`` happens at an event of a matching subject.

    Events are those of Python's audit hooks (``open``, ``os.rename`` by its target, ``os.remove``)
    and the two of `WATCHED`, counted in each process.
    """
    return {"FAULT": f"{event}|{pattern}|{count}|{action}"}


def in_step(step: int, forwards: int = 1, action: str = "group") -> dict[str, str]:
    """Return the environment in which ``action`` happens in the middle of a step.

    ``forwards`` is how many micro-batches a step has; the fault is in the middle one.
    """
    call = ((step - 1) * forwards + forwards // 2) * CALLS_PER_FORWARD + 2
    return fault("faults.train", call, 1, action)


class Place:
    """A folder to type commands in, with a text, a component and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (f"line {i % 7} of a short text, word {i}\n" for i in range(120))
        (folder / "words.txt").write_text("".join(lines))
        (folder / "watched.py").write_text(WATCHED)
        hooks = folder / "hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / "sitecustomize.py").write_text(HOOK)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "COV_"))}
        self.environment = {
            **kept,
            "LM_EXPERIMENTS_CACHE": str(folder / "cache"),
            "PYTHONPATH": f"{hooks}{os.pathsep}{ROOT}",
            MARK: self.mark,
        }

    def start(self, *arguments: str, cold: bool = True, **more: Any) -> Command:
        """Start ``scripts/train.py``: as it is typed, or forked from the server of `warm`."""
        starter = _start_cold if cold else _start_warm
        flags = [text for text in arguments if text == "-m"]
        words = [*flags, *completed((text for text in arguments if text != "-m"), TINY)]
        environment = {**self.environment, **more.pop("environment", {})}
        return starter(self, words, environment, **more)

    def train(
        self, *arguments: str, cold: bool = True, seconds: float = 120, **more: Any
    ) -> Answer:
        """Type a command and wait for its end; nothing of it may be left running."""
        with self.start(*arguments, cold=cold, **more) as command:
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
        places = [self.folder / "runs", self.folder / "cache"]
        paths = [path for place in places for path in place.rglob("*") if "wandb" not in path.parts]
        return [
            str(path.relative_to(self.folder))
            for path in paths
            if LITTER.search(path.name) and not LOCK.search(path.name)
        ]

    def living(self) -> list[int]:
        """Return the processes that stem from this place's commands and have not ended."""
        return [pid for pid in _processes() if is_marked(pid, self.mark)]


@dataclass(frozen=True)
class Answer:
    """How a command ended: the code a shell would show, and what it said."""

    code: int
    text: str


@dataclass
class Command:
    """A command that runs in a session of its own; leaving its ``with`` block leaves no process."""

    place: Place
    pid: int
    poll: Callable[[], int | None]
    output: Path

    def __enter__(self) -> Command:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        left = self.left()
        deadline = time.monotonic() + 30
        while left and kind is None and time.monotonic() < deadline:
            time.sleep(0.02)
            left = self.left()
        names = [_words(pid) for pid in left]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: self.poll() is not None, 10, "its process to be gone")
        if kind is None:
            assert not left, f"these processes were left behind: {names}"

    def left(self) -> list[int]:
        """Return the command's processes that are still there, itself included."""
        in_session = [pid for pid in _processes() if _session(pid) == self.pid]
        return sorted({*in_session, *self.place.living()})

    def wait(self, seconds: float) -> Answer:
        """Wait for the end; where it takes longer than it may, fail."""
        until(lambda: self.poll() is not None, seconds, "the command to end", self)
        code = self.poll()
        assert code is not None
        return Answer(code if code >= 0 else 128 - code, self.text())

    def text(self) -> str:
        """Return what it has said so far."""
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
            said = f"; it said:\n{command.text()}" if command else ""
            raise AssertionError(f"waited {seconds:g} s for {what}{said}")
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


def rows(run: Path) -> list[dict[str, Any]]:
    """Return the rows of ``metrics.jsonl``, without the measured speed."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(x).items() if "per_second" not in k} for x in lines]


def result(run: Path) -> dict[str, Any]:
    """Return ``result.json``."""
    values: dict[str, Any] = json.loads((run / "result.json").read_text())
    return values


def state(run: Path) -> dict[str, Any]:
    """Return weights, optimizer state and step of the newest checkpoint."""
    saved = torch.load(max((run / "checkpoints").glob("*.ckpt")), weights_only=True)
    return {key: saved[key] for key in ("state_dict", "optimizer_states", "global_step")}


def assert_same(run: Path, other: Path, saved: bool = True) -> None:
    """Compare two runs bit for bit in everything but measured times.

    ``saved`` is whether they also saved at the same steps, as runs do that got no signal.
    """
    assert rows(run) == rows(other)
    keys = [(row["step"], frozenset(row)) for row in rows(run)]
    assert len(keys) == len(set(keys)), "a step is logged twice"
    assert _equal(state(run), state(other)), "the final weights or optimizer states differ"
    one, two = ({k: v for k, v in result(r).items() if k not in TIMING} for r in (run, other))
    assert one == two
    if saved:
        assert _names(run / "checkpoints") == _names(other / "checkpoints")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _processes() -> list[int]:
    """Return all processes that have not ended; a zombie has."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _stat(pid)[:1] not in ([], ["Z"], ["X"])]


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


def _start_cold(
    place: Place, words: list[str], environment: dict[str, str], terminal: str | None = None
) -> Command:
    output = place.folder / f"output-{uuid.uuid4().hex[:8]}.txt"

    def prepare() -> None:
        # A shell that starts pytest in the background has it ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if terminal is not None:
            # The first terminal that a session's leader opens becomes the session's.
            os.close(os.open(terminal, os.O_RDWR))

    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *words],
            cwd=place.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,
        )
    return Command(place, process.pid, process.poll, output)


def _start_warm(place: Place, words: list[str], environment: dict[str, str]) -> Command:
    output = place.folder / f"output-{uuid.uuid4().hex[:8]}.txt"
    asked = {"script": str(SCRIPT), "words": words, "folder": str(place.folder)}
    pid = warm().ask({**asked, "output": str(output), "environment": environment})

    ended: list[int] = []

    def poll() -> int | None:
        if not ended and (code := warm().ask({"poll": pid})) is not None:
            ended.append(code)
        return ended[0] if ended else None

    assert isinstance(pid, int)
    return Command(place, pid, poll, output)
