"""Faults at chosen points of a command: an audit hook, and a norm that the hook can interrupt."""

from __future__ import annotations

from pathlib import Path

from harness.commands import SMALL, completed
from harness.processes import Place
from harness.warm_start import WarmStarts, warm_starts

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
            with open(marks + ".reached", "a") as file:
                file.write(str(os.getpid()) + "\\n")
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


def fault_place(folder: Path, warm: WarmStarts | None = None) -> Place:
    """Return a place whose commands can be interrupted by `fault`, started warm."""
    files = {"watched.py": WATCHED, "hooks/sitecustomize.py": HOOK}
    return Place(folder, TINY, files, warm or warm_starts())


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
