"""Start-up times: of the help, and of one more run of a sweep up to its first step."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lm_experiments.benchmark.lightning_run import run_config
from lm_experiments.benchmark.rounds import TRAIN, Contestant, Measurement, measure, timed
from lm_experiments.data import prepare
from lm_experiments.launch.local import train
from lm_experiments.launch.task import Task
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.results import DONE
from lm_experiments.training.config import RunConfig, TrainerConfig, save_config
from lm_experiments.training.logger_config import NoLogger, WandbConfig

TITLE = "Start-up times in separate processes; of runs up to and including the first logged step."
POLL_SECONDS = 0.002
LOGGERS = {
    "one more run of a sweep": NoLogger(),
    "the same, with W&B offline": WandbConfig(mode="offline"),
}


def startup(rounds: int) -> Measurement:
    """Time ``import torch``, the help, and one more run of the default size in a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        contestants = {
            "python -c 'import torch'": _process(TRAIN[0], "-c", "import torch"),
            "train.py --help": _process(*TRAIN, "--help"),
        }
        config = run_config(TrainerConfig(max_steps=1, accelerator="cpu"), Path(folder) / "cache")
        prepare(config.data, config.tokenizer, Path(config.cache_dir))
        for name, logger in LOGGERS.items():
            logged = dataclasses.replace(config, logger=logger)
            contestants[name] = one_more_run(logged, Path(folder) / logger.name)
        return Measurement(TITLE, measure(contestants, rounds), rounds)


def one_more_run(config: RunConfig, folder: Path) -> Contestant:
    """Return a contestant that starts ``config`` as sweeps do, in a new directory each time.

    The time ends when the first row of metrics is on disk.

    Raises:
        RuntimeError: if the run fails.
    """
    numbers = itertools.count()

    def _run() -> float:
        run_dir = folder / f"run-{next(numbers)}"
        run_dir.mkdir(parents=True)
        save_config(config, run_dir)
        write_identity(run_dir, Identity("", ""))
        start = time.perf_counter()
        with _first_content(run_dir / "metrics.jsonl") as seen:
            ending = train(Task(run_dir, devices=config.trainer.devices))
        if ending.status != DONE or not seen:
            log = (run_dir / "train.log").read_text(encoding="utf-8")
            raise RuntimeError(
                f"the run to be timed ended with exit code {ending.exit_status}:\n{log}"
            )
        return seen[0] - start

    return _run


@contextmanager
def _first_content(path: Path) -> Iterator[list[float]]:
    """Yield a list to which the time is added when ``path`` first has content."""
    seen: list[float] = []
    stop = threading.Event()

    def _poll() -> None:
        while not seen and not stop.wait(POLL_SECONDS):
            if path.exists() and path.stat().st_size:
                seen.append(time.perf_counter())

    watcher = threading.Thread(target=_poll)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


def _process(*command: str) -> Contestant:
    return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
