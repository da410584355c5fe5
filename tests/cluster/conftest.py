"""Sweeps for launchers: their defaults, and components that fail or note their GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.commands import SMALL
from harness.processes import Place

# Threads are left to the launcher.
OTHERWISE = ("trainer.threads", "trainer.max_steps")
TINY = (
    "-m",
    *(word for word in SMALL if not word.startswith(OTHERWISE)),
    "data.path=words.txt",
    "data.batch_size=4",
    "trainer.max_steps=4",
    "trainer.val_every=4",
)
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


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place to type sweeps in."""
    return Place(tmp_path, TINY, {"code.py": CODE}, NOTES=str(tmp_path / "notes.txt"))
