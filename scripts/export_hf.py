"""Write a run as a Hugging Face folder: python scripts/export_hf.py --help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lm_experiments.cli.arguments import answered, script_parser
from lm_experiments.cli.open_run import open_run
from lm_experiments.errors import InputError
from lm_experiments.training.user_code import load_installed, take_code_paths

DESCRIPTION = """\
Write a trained run, by its newest checkpoint, as a folder that AutoModelForCausalLM and
AutoTokenizer of transformers load without this package. The run directory is only read.

An architecture that no class of transformers known here expresses is refused, and what stands in
the way is named. Exported are gpt2, gpt_neox, llama, olmo2, qwen3, gemma2 and bloom, and what else
their classes can do; tokenizers of every kind."""
EXAMPLES = """\
examples:
  python scripts/export_hf.py runs/grid/pre-swiglu-rope-s0-1a2b3c4d exported
  lm_eval --model hf --model_args pretrained=exported --tasks lambada_openai"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 where nothing can be written."""
    options = _parser().parse_intermixed_args(arguments)
    return answered(lambda: _export(options.words))


def _parser() -> argparse.ArgumentParser:
    usage = "%(prog)s RUN OUT [code_paths=[FILE,...]]"
    parser = script_parser(usage, DESCRIPTION, EXAMPLES)
    parser.add_argument("words", nargs="+", help="a run directory, and the folder to write")
    return parser


def _paths(words: Sequence[str]) -> tuple[Path, Path]:
    if len(words) != 2:
        raise InputError(
            "Type a run directory and the folder to write: python scripts/export_hf.py RUN OUT."
        )
    return Path(words[0]), Path(words[1])


def _export(words: Sequence[str]) -> None:
    load_installed()
    run_dir, out = _paths(take_code_paths(words))
    # Imports transformers, which takes seconds, and may not be installed.
    from transformers.utils import logging as their_logging

    from lm_experiments.interop import write_folder

    # A bar over the one or two files of a small model tells nothing.
    their_logging.disable_progress_bar()
    run = open_run(run_dir)
    written = write_folder(out, run.model(), run.data.tokenizer)
    print(f"{out} holds a {written}; AutoModelForCausalLM.from_pretrained({str(out)!r}) loads it.")


if __name__ == "__main__":
    sys.exit(main())
