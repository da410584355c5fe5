"""Freed memory stays with a process that trains, and does not change what it computes."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from lm_experiments.training.allocation import keep_freed_memory

if "keep" in sys.argv:
    keep_freed_memory()

def work():
    # As activations: all of them live, then none.
    return sum(block[-1].item() for block in [torch.ones(2 << 20) for _ in range(16)])

for _ in range(4):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    value = work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, value)
"""
# Of all blocks of one turn.
PAGES = 16 * (8 << 20) // 4096


def faults(*words: str) -> tuple[int, float]:
    command = [sys.executable, "-c", FAULTS, *words]
    pages, value = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.split()
    return int(pages), float(value)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_freed_memory_is_not_asked_for_again() -> None:
    (_, expected), (kept, value) = faults(), faults("keep")
    assert value == expected
    # Given back, they would be asked for four times.
    assert kept < PAGES
