"""``prepare_data``: downloads and encodes the corpus that a training command names."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from omegaconf import DictConfig

from lm_experiments.cli import train as command
from lm_experiments.cli.arguments import shown_log
from lm_experiments.cli.errors import refuse
from lm_experiments.cli.help import offer_preparation_help
from lm_experiments.data import overlap_lines, prepare
from lm_experiments.errors import InputError
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.words import duration
from lm_experiments.study.plan import plain
from lm_experiments.training.config import BatchConfig, build_choice


def main() -> None:
    """Prepare a corpus; the arguments are those of the training command."""
    if {"-m", "--multirun"} & set(sys.argv[1:]):
        error = InputError(
            "-m cannot be used: one command prepares one corpus; leave out -m and what is "
            "swept, and type data= and tokenizer= once for each corpus."
        )
        refuse(error, sys.argv[1:])
    command.main(prepare_job, offer_preparation_help)


def prepare_job(config: DictConfig) -> None:
    """Prepare a corpus if ``cache_dir`` lacks it, and print its sizes.

    The model and the device are not looked at: they may be those of another machine.
    """
    started = time.monotonic()
    try:
        values = plain(config)
        data = build(BatchConfig, values["data"], "data")
        tokenizer = build_choice("tokenizer", values["tokenizer"])
        with shown_log(sys.stdout):
            prepared = prepare(data.corpus, tokenizer, Path(values["cache_dir"]).expanduser())
    except (ValueError, OSError) as error:
        # Hydra would print of its own before it.
        refuse(error, sys.argv[1:])
    for side, part in {"train": prepared.train, **prepared.held_out}.items():
        print(f"{side}: {part.description}")
    print(*overlap_lines(prepared.overlaps, prepared.held_out), sep="\n")
    print(f"vocabulary: {prepared.tokenizer.vocab_size:,}; data hash: {prepared.data_hash[:8]}")
    print(f"ready after {duration(time.monotonic() - started)} in {prepared.directory}")
