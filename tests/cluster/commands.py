"""Real command lines, each with a time limit, after which no process of theirs may be left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_lines import MARK, ROOT, SMALL, is_marked

SCRIPT = ROOT / "scripts" / "train.py"
# Threads are left to the launcher.
OTHERWISE = ("trainer.threads", "trainer.max_steps")
TINY = (
    *(word for word in SMALL if not word.startswith(OTHERWISE)),
    "data.path=words.txt",
    "data.batch_size=4",
    "trainer.max_steps=4",
    "trainer.val_every=4",
)
TIMING = ("seconds", "tokens_per_second", "peak_memory_bytes")
# Components that fail, and one that takes its time and notes what GPU it was given.
CODE = '''
import os, signal, time
from pathlib import Path
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "raising", NormOptions)
class Raising(RMSNorm):
    """Raises in its first forward pass."""
    def forward(self, x):
        raise RuntimeError("this norm is broken")

@register("norm", "noting", NormOptions)
class Noting(RMSNorm):
    """Notes when and on which GPU it was used."""
    def forward(self, x):
        note = f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')} {time.time()}\\n"
        with Path(os.environ["NOTES"]).open("a") as file:
            file.write(note)
        time.sleep(float(os.environ.get("PAUSE", "0.01")))
        return super().forward(x)
'''


class Place:
    """A folder to type commands in, with a text, components and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        lines = (f"line {i % 7} of a short text, word {i}\n" for i in range(120))
        (folder / "words.txt").write_text("".join(lines))
        (folder / "code.py").write_text(CODE)
        dropped = ("WANDB_", "COV_", "SLURM_", "RAY_", "CUDA_")
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(dropped)},
            "LM_EXPERIMENTS_CACHE": str(folder / "cache"),
            "PYTHONPATH": str(ROOT),
            "NOTES": str(folder / "notes.txt"),
            MARK: self.mark,
        }

    @contextlib.contextmanager
    def started(
        self, *words: str, beside: Collection[int] = (), **environment: str
    ) -> Iterator[Command]:
        """Start ``scripts/train.py -m``; leaving the block leaves no process but those beside."""
        given = {word.split("=")[0] for word in words}
        kept = [word for word in TINY if word.split("=")[0] not in given]
        output = self.folder / f"output-{uuid.uuid4().hex[:8]}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), "-m", *kept, *words],
                cwd=self.folder,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_with_ctrl_c,
            )
        command = Command(self, process, output)
        try:
            yield command
        except BaseException:
            self.kill(beside)
            raise
        finally:
            with contextlib.suppress(AssertionError):
                until(lambda: not self.living(beside), 20, "all processes to end")
            left = [_name(pid) for pid in self.living(beside)]
            self.kill(beside)
            process.wait(10)
        assert not left, f"these processes were left behind: {left}"

    def train(self, *words: str, seconds: float = 150, **environment: str) -> Answer:
        """Type a sweep and wait for its end."""
        with self.started(*words, **environment) as command:
            return command.wait(seconds)

    def run(self, sweep: str, pattern: str = "*") -> Path:
        """Return the only run directory of a sweep that matches."""
        [found] = [p for p in (self.folder / "runs" / sweep).glob(f"{pattern}-s*") if p.is_dir()]
        return found

    def living(self, beside: Collection[int] = ()) -> list[int]:
        """Return the processes that stem from this place's commands and have not ended."""
        return [pid for pid in _processes() if pid not in beside and is_marked(pid, self.mark)]

    def kill(self, beside: Collection[int] = ()) -> None:
        """End what is left of this place's commands."""
        for pid in self.living(beside):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it said."""

    code: int
    text: str


@dataclass
class Command:
    """A command that was started."""

    place: Place
    process: subprocess.Popen[bytes]
    output: Path

    def wait(self, seconds: float) -> Answer:
        """Wait for the end; fail where that takes too long."""
        until(lambda: self.process.poll() is not None, seconds, "the command to end", self.text)
        return Answer(self.process.returncode, self.text())

    def text(self) -> str:
        """Return what it has said so far."""
        return self.output.read_text(errors="replace")


def until(
    true: Callable[[], object], seconds: float, what: str, said: Callable[[], str] = str
) -> None:
    """Wait until something is true; fail with ``what`` where that takes too long."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}; it said:\n{said()}"
        time.sleep(0.05)


def result(run: Path) -> dict[str, Any]:
    """Return ``result.json``."""
    values: dict[str, Any] = json.loads((run / "result.json").read_text())
    return values


def lasting(run: Path) -> tuple[Any, ...]:
    """Return what a run came to, without measured times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [{k: v for k, v in row.items() if "per_second" not in k} for row in rows]
    return {k: v for k, v in result(run).items() if k not in TIMING}, kept


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    return str(pid)


def _with_ctrl_c() -> None:
    # A shell that starts something in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
