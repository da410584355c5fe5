"""``export_hf``: a trained run as a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lm_experiments.cli.arguments import answered, load_user_code, offer_average, script_parser
from lm_experiments.errors import InputError
from lm_experiments.study.open_run import open_run

DESCRIPTION = """\
Write a trained run, by its newest checkpoint, as a folder that AutoModelForCausalLM and
AutoTokenizer of transformers load without this package. The run directory is only read.

The architecture must be one that the class of gpt2, gpt_neox, llama, olmo2, qwen3, gemma2 or bloom
can express; otherwise the choices that do not fit are named. The tokenizer is written too."""
EXAMPLES = """\
examples:
  python scripts/export_hf.py runs/grid/pre-swiglu-rope-s0-1a2b3c4d exported
  lm_eval --model hf --model_args pretrained=exported --tasks lambada_openai"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 if nothing can be written."""
    usage = "%(prog)s RUN OUT [--average] [code_paths=[FILE,...]]"
    parser = script_parser(usage, DESCRIPTION, EXAMPLES)
    parser.add_argument("words", nargs="+", help="a run directory, and the folder to write")
    offer_average(parser)
    options = parser.parse_intermixed_args(arguments)
    return answered(lambda: _export(options.words, options.average))


def _export(words: Sequence[str], average: bool) -> None:
    paths = [Path(word) for word in load_user_code(words)]
    if len(paths) != 2:
        raise InputError(
            "Type a run directory and the folder to write: python scripts/export_hf.py RUN OUT."
        )
    # Imports transformers, which takes seconds, and may not be installed.
    from transformers.utils import logging as their_logging

    from lm_experiments.interop import write_folder

    # A small model is one or two files; a progress bar says nothing.
    their_logging.disable_progress_bar()
    run, out = open_run(paths[0]), paths[1]
    written = write_folder(out, run.model(average=average), run.tokenizer)
    print(f"{out} holds a {written}; AutoModelForCausalLM.from_pretrained({str(out)!r}) loads it.")
