"""Command lines of the smallest model, and commands that run in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A model so small that a step takes milliseconds.
SMALL = (
    "size=tiny",
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
    "model.context_length=16",
    "model.d_ff=32",
    "match_tolerance=0.05",
    "tokenizer=bytes",
    "data=text",
    "trainer.max_steps=3",
    "trainer.log_every=1",
    "trainer.threads=1",
    "logger=none",
    # Tests of anything else train all runs that they compare.
    "runs_from=[]",
)


@dataclass(frozen=True)
class Answer:
    """How a command ended: the exit status that a shell shows, and what it printed.

    A command that runs as a process of its own prints both streams to ``out``.
    """

    code: int
    out: str
    err: str = ""

    @property
    def text(self) -> str:
        """Return both streams."""
        return self.out + self.err


def completed(words: Iterable[str], defaults: Iterable[str]) -> list[str]:
    """Return the words after those defaults that they do not set themselves."""
    words = list(words)
    given = {word.split("=")[0] for word in words}
    return [*(text for text in defaults if text.split("=")[0] not in given), *words]


def script(name: str) -> Path:
    """Return the path of ``scripts/NAME.py``."""
    return ROOT / "scripts" / f"{name}.py"


def run_script(name: str) -> int:
    """Execute ``scripts/NAME.py`` in this process, as ``python`` would; return its exit status.

    Its arguments are those of `sys.argv`.
    """
    code = compile(script(name).read_text(encoding="utf-8"), str(script(name)), "exec")
    try:
        exec(code, {"__name__": "__main__", "__file__": str(script(name))})
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run some code in an interpreter of its own, in the repository's folder."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def imported(name: str, modules: Iterable[str]) -> str:
    """Return which of these modules are loaded after ``scripts/NAME.py`` is, as a list's text."""
    watched = tuple(modules)
    done = python(
        f"import runpy, sys; runpy.run_path({str(script(name))!r}); "
        f"print([name for name in {watched!r} if name in sys.modules])"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
