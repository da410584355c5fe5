"""How long one waits: for the help, and for one more run of a sweep to make its first step."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lm_experiments.benchmark.rounds import Contestant, Report, measure, timed
from lm_experiments.data import prepare
from lm_experiments.launch.fork import train_isolated
from lm_experiments.model import ModelConfig
from lm_experiments.registry import choose
from lm_experiments.rundir.identity import Identity
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig, save_config
from lm_experiments.training.logger_config import NoLogger, WandbConfig
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant

TRAIN = Path(__file__).parents[2] / "scripts" / "train.py"
TITLE = "Waiting, in processes of their own; runs up to the first logged step, the step included."
VOCABULARY = 2048
LOOK_EVERY = 0.002
LOGGERS = {
    "one more run of a sweep": NoLogger(),
    "the same, with W&B offline": WandbConfig(mode="offline"),
}


def startup(rounds: int) -> Report:
    """Time ``import torch``, the help, and one more run of the default size in a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        contestants = {
            "python -c 'import torch'": _process("-c", "import torch"),
            "train.py --help": _process(str(TRAIN), "--help"),
        }
        config = one_step(Path(folder) / "cache")
        prepare(config.data, config.tokenizer, Path(config.cache_dir))
        for name, logger in LOGGERS.items():
            logged = dataclasses.replace(config, logger=logger)
            contestants[name] = one_more_run(logged, Path(folder) / logger.name)
        return Report(TITLE, measure(contestants, rounds), rounds)


def one_step(cache_dir: Path) -> RunConfig:
    """Return a run of the default size that ends after its first step."""
    return RunConfig(
        model=ModelConfig(vocab_size=VOCABULARY),
        data=BatchConfig(val_fraction=0.01),
        tokenizer=choose("tokenizer", "bpe", {"vocab_size": VOCABULARY}),
        optimizer=AdamW(),
        schedule=Constant(),
        trainer=TrainerConfig(max_steps=1, accelerator="cpu"),
        logger=NoLogger(),
        cache_dir=str(cache_dir),
    )


def one_more_run(config: RunConfig, folder: Path) -> Contestant:
    """Return the contestant that starts ``config`` as sweeps do, in a new directory each time.

    Its time ends where the run's first row of metrics is on disk.

    Raises:
        RuntimeError: where the run failed.
    """
    numbers = itertools.count()

    def run() -> float:
        run_dir = folder / f"run-{next(numbers)}"
        run_dir.mkdir(parents=True)
        save_config(config, run_dir)
        start = time.perf_counter()
        with _watching(run_dir / "metrics.jsonl") as seen:
            code = train_isolated(run_dir, Identity("", ""), [], config.trainer.devices)
        if code or not seen:
            log = (run_dir / "train.log").read_text(encoding="utf-8")
            raise RuntimeError(f"the run to be timed ended with exit code {code}:\n{log}")
        return seen[0] - start

    return run


@contextmanager
def _watching(path: Path) -> Iterator[list[float]]:
    """Yield a list that gets the time at which ``path`` was first seen not empty."""
    seen: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not seen and not over.wait(LOOK_EVERY):
            if path.exists() and path.stat().st_size:
                seen.append(time.perf_counter())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _process(*arguments: str) -> Contestant:
    """Return the contestant that runs Python with ``arguments``, its output dropped."""
    command: Sequence[str] = (sys.executable, *arguments)
    return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
