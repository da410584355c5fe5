"""Work in a process of its own, whose memory can be measured, done whenever it is asked for."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lm_experiments.benchmark.rounds import synchronise
from lm_experiments.errors import InputError
from lm_experiments.training.devices import process_peak_bytes

Work = Callable[[], object]


class Worker:
    """A process that has built some work, and does it when asked.

    Attributes:
        peak_bytes: the most memory the work held so far: of the GPU, else of the process beyond
            what it held before the work was built.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.peak_bytes = 0

    def wall(self) -> float:
        """Do the work once; return the seconds that passed."""
        return self._answer()["wall"]

    def work(self) -> float:
        """Do the work once; return the seconds that the process computed."""
        return self._answer()["work"]

    def _answer(self) -> dict[str, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print("", file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise InputError(f"{self.process.args!r} ended; there may be too little memory for it.")
        answer: dict[str, float] = json.loads(line)
        self.peak_bytes = int(answer["peak"])
        return answer


@contextmanager
def worker(build: Callable[..., Work], **arguments: Any) -> Iterator[Worker]:
    """Start a process that builds its work with a module's function, and end it in the end."""
    name = f"{build.__module__}:{build.__qualname__}"
    command = [sys.executable, "-m", __name__, name, json.dumps(arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


def _serve(name: str, arguments: dict[str, Any]) -> None:
    module, _, function = name.partition(":")
    build = getattr(importlib.import_module(module), function)
    before = _held()
    work = build(**arguments)
    for _ in sys.stdin:
        computed, start = time.process_time(), time.perf_counter()
        work()
        synchronise()
        wall, computed = time.perf_counter() - start, time.process_time() - computed
        answer = {"wall": wall, "work": computed, "peak": _held() - before}
        print(json.dumps(answer), flush=True)


def _held() -> int:
    """Return the most memory held so far."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return process_peak_bytes()


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]))
