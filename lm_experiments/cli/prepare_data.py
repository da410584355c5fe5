"""``prepare_data``: downloads and encodes the corpus that a training command names."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lm_experiments.cli import train as command
from lm_experiments.cli.errors import refuse
from lm_experiments.data import PreparedData, TokenStore, prepare
from lm_experiments.errors import InputError
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.words import duration, size
from lm_experiments.study.plan import plain
from lm_experiments.training.config import BatchConfig, build_choice


def main() -> None:
    """Prepare a corpus; the arguments are those of the training command."""
    if {"-m", "--multirun"} & set(sys.argv[1:]):
        refuse(
            InputError(
                "-m cannot be used: one command prepares one corpus; leave out -m and what is "
                "swept, and type data= and tokenizer= once for each corpus."
            ),
            sys.argv[1:],
        )
    command.main(prepare_job)


def prepare_job(config: DictConfig) -> None:
    """Prepare a corpus where ``cache_dir`` lacks it, and say what there is.

    The model and the device are not looked at: they may be those of another machine.
    """
    started = time.monotonic()
    try:
        prepared = _prepared(plain(config))
    except (ValueError, OSError) as error:
        # Hydra would print of its own before it.
        refuse(error, sys.argv[1:])
    print("\n".join(summary(prepared, time.monotonic() - started)))


def _prepared(values: Mapping[str, Any]) -> PreparedData:
    data = build(BatchConfig, values["data"], "data")
    tokenizer = build_choice("tokenizer", values["tokenizer"])
    with _told():
        return prepare(data.corpus, tokenizer, Path(values["cache_dir"]).expanduser())


def summary(prepared: PreparedData, seconds: float) -> list[str]:
    """Return the lines that say what was prepared, where it lies, and how long it took."""
    sides = {"train": prepared.train, "val": prepared.val}
    return [
        *(f"{name}: {_contents(store)}" for name, store in sides.items()),
        f"vocabulary: {prepared.tokenizer.vocab_size:,}; data hash: {prepared.data_hash[:8]}",
        f"ready after {duration(seconds)} in {prepared.directory}",
    ]


def _contents(store: TokenStore) -> str:
    words = [f"{len(store.tokens):,} tokens"]
    if store.documents is not None:
        words.append(f"{store.documents:,} documents")
    if store.bytes is not None:
        words.append(f"{store.bytes:,} bytes of text ({size(store.bytes)})")
    return ", ".join(words)


@contextmanager
def _told() -> Iterator[None]:
    """Show on the console what the preparation says of itself."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("lm_experiments.data")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
