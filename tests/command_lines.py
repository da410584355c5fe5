"""Command lines of the smallest model, and the commands themselves, for tests of many folders."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
# The environment variable by which processes that stem from a test are known.
MARK = "LM_EXPERIMENTS_TEST_MARK"
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
)


def completed(words: Iterable[str], defaults: Iterable[str]) -> list[str]:
    """Return the words after those defaults that they do not set themselves."""
    words = list(words)
    given = {word.split("=")[0] for word in words}
    return [*(text for text in defaults if text.split("=")[0] not in given), *words]


def is_marked(pid: int, mark: str) -> bool:
    """Return whether a process has this value of `MARK` in its environment."""
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def load_script(name: str) -> ModuleType:
    """Return the module of ``scripts/NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / f"scripts/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run some code in an interpreter of its own, in the repository's folder."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
