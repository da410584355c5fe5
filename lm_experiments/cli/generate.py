"""``generate``: text written by a trained run."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from lm_experiments.cli.arguments import answered, load_user_code, offer_average, script_parser
from lm_experiments.data import Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.evaluation import Sampling, encode_prompt, sample_batch, stream
from lm_experiments.model import Transformer
from lm_experiments.study.open_run import open_run

DESCRIPTION = """\
Write text with a trained run, from its newest checkpoint, on the CPU. The prompt is printed first
and the text as it is drawn; it ends after --tokens tokens, or where the model ends the document.
Several prompts are continued together, each as it would be alone, and printed at the end.

The run directory is only read. Where the prepared corpus is no longer in the run's cache, it is
prepared again, since the tokenizer belongs to it."""
EXAMPLES = """\
examples:
  python scripts/generate.py runs/grid/pre-relu-rope-s0-1a2b3c4d --prompt "In the beginning"
  python scripts/generate.py RUN --prompt "And he said" --temperature 0
  python scripts/generate.py RUN --samples 3 --seed 10 --top-k 20
  python scripts/generate.py RUN --prompt "And he said" --prompt "And she said"
  python scripts/generate.py RUN --prompt "In the" code_paths=[my_norm.py]

Code is never run from a run directory: where a run has components of your own, name their file
with code_paths, as in training."""
PROMPT = "what the text starts with (default: nothing, as a new document); may be repeated"
INCOMPLETE = "\ufffd"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 if no text can be written."""
    usage = "%(prog)s RUN [--prompt TEXT] [options] [code_paths=[FILE,...]]"
    parser = script_parser(usage, DESCRIPTION, EXAMPLES)
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory, runs/NAME/RUN")
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--prompt", action="append", help=PROMPT)
    for flag, kind, default, meaning in _OPTIONS:
        parser.add_argument(flag, type=kind, default=default, help=meaning)
    offer_average(parser)
    options = parser.parse_intermixed_args(arguments)
    # One sequence keeps one core busy; with more, they wait for each other and round differently.
    torch.set_num_threads(1)
    return answered(lambda: _write_samples(options))


_OPTIONS = (
    ("--tokens", int, 200, "the most tokens to write (default: 200)"),
    ("--temperature", float, 0.8, "below 1 safer, above 1 wilder, 0 the likeliest (default: 0.8)"),
    ("--top-k", int, None, "draw from the K likeliest tokens only (default: all)"),
    ("--top-p", float, 1.0, "draw from the likeliest that sum to P only (default: 1, all)"),
    ("--seed", int, 0, "the seed of the first sample; each next one has the next (default: 0)"),
    ("--samples", int, 1, "how many texts to write (default: 1)"),
)


def _write_samples(options: argparse.Namespace) -> None:
    if words := load_user_code(options.words):
        raise InputError(
            f"{words[0]} is not understood; after the run directory come options, see --help, and "
            "code_paths=[my_block.py]. A prompt of several words needs quotes."
        )
    sampling = Sampling(options.temperature, options.top_k, options.top_p)
    if options.samples < 1:
        raise InputError(f"--samples {options.samples} must be 1 or more.")
    run = open_run(options.run)
    model, tokenizer = run.model(average=options.average), run.tokenizer
    texts = options.prompt or [""]
    prompts = [encode_prompt(text, tokenizer, "--prompt") for text in texts]
    for seed in range(options.seed, options.seed + options.samples):
        parts = _continued(model, tokenizer, prompts, sampling, seed, options)
        for number, (text, continuation) in enumerate(zip(texts, parts, strict=True), start=1):
            told = [f"prompt {number}"] if len(texts) > 1 else []
            told += [f"seed {seed}"] if options.samples > 1 else []
            if told:
                print(f"--- {', '.join(told)} ---")
            for part in itertools.chain([text], continuation):
                print(part, end="", flush=True)
            print()


def _continued(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: list[list[int]],
    sampling: Sampling,
    seed: int,
    options: argparse.Namespace,
) -> list[Iterator[str]]:
    """Return each prompt's continuation in parts; those of one prompt come as they are drawn."""
    generators = [torch.Generator().manual_seed(seed) for _ in prompts]
    end = tokenizer.end_of_text_id
    rows: list[Iterable[int]]
    if len(prompts) == 1:
        [prompt], [generator] = prompts, generators
        rows = [stream(model, prompt, options.tokens, sampling, generator, end)]
    else:
        rows = [*sample_batch(model, prompts, options.tokens, sampling, generators, end)]
    return [_text_parts(ids, tokenizer) for ids in rows]


def _text_parts(ids: Iterable[int], tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the text of ids piece by piece, a character only when all its bytes are there."""
    seen: list[int] = []
    shown = 0
    for token in ids:
        seen.append(token)
        text = tokenizer.decode(seen)
        complete = len(text.rstrip(INCOMPLETE))
        if complete > shown:
            yield text[shown:complete]
            shown = complete
    yield tokenizer.decode(seen)[shown:]
