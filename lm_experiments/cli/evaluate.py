"""``evaluate``: the loss of trained runs, on other texts and context lengths too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from lm_experiments.cli.arguments import answered, load_user_code, offer_average, script_parser
from lm_experiments.data import PARTS, DataConfig, Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.evaluation import EncodedText, documents_to_evaluate, encode, score
from lm_experiments.model import ModelConfig, Transformer, sketch_model
from lm_experiments.rundir.names import SWEEP
from lm_experiments.study.evaluations import CACHE, evaluate_sweep
from lm_experiments.study.open_run import corpus_to_evaluate, open_run

DESCRIPTION = """\
Print the loss of trained runs, each by its newest checkpoint: over the validation text of the run,
over its test text, or over another text, at the context length of the run or at others. A longer
context gives each token more of the preceding text; trained positions (position=learned) cannot be
extended.
hf:FOLDER is a model of Hugging Face's transformers in a local folder; it needs --data.

Of runs/NAME, the folder of a sweep, all runs are measured on what its study asks under evaluate:,
as far as that is missing, and keep it in evaluations.json for the table.

Otherwise run directories are only read. Losses are taken in float32, in windows that do not
overlap."""
EXAMPLES = """\
examples:
  python scripts/evaluate.py runs/grid/pre-relu-rope-s0-1a2b3c4d
  python scripts/evaluate.py RUN RUN --contexts 64,128,256
  python scripts/evaluate.py RUN --split test
  python scripts/evaluate.py RUN --data text --path notes.txt
  python scripts/evaluate.py RUN hf:FOLDER --data text --path notes.txt
  python scripts/evaluate.py RUN --data tinystories data.max_documents=1000
  python scripts/evaluate.py runs/NAME
  python scripts/evaluate.py RUN code_paths=[my_norm.py]

Text files are read whole, of other corpora the validation part; data.KEY=VALUE is as in
training. Losses in nats per token compare runs of one tokenizer, bits per byte any on the
same text. Code is never run from a run directory: where a run has components of your own, name
their file with code_paths."""
HUGGING_FACE = "hf:"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 if something cannot be evaluated."""
    usage = "%(prog)s RUN [RUN ...] [options] [code_paths=[FILE,...]]"
    parser = script_parser(usage, DESCRIPTION, EXAMPLES)
    parser.add_argument("words", metavar="RUN", nargs="+", help="run directories, runs/NAME/RUN")
    parser.add_argument("--contexts", help="context lengths, such as 64,128 (default: the run's)")
    parser.add_argument(
        "--data", metavar="NAME", help="another corpus: text, kjv, tinystories, ..."
    )
    parser.add_argument("--path", help="where it lies: for text a file, a folder or a glob")
    parser.add_argument(
        "--split", choices=["val", "test"], default="val", help="which text of the run (val)"
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps (default: a GPU, if any)")
    offer_average(parser)
    options = parser.parse_intermixed_args(arguments)
    return answered(lambda: _evaluate(options))


def _evaluate(options: argparse.Namespace) -> int:
    words = load_user_code(options.words)
    if len(words) == 1 and (Path(words[0]) / SWEEP).is_file():
        return _evaluate_sweep(Path(words[0]), options)
    runs = [word for word in words if not word.startswith("data.")]
    if not runs:
        raise InputError("No run is named; type python scripts/evaluate.py and a run directory.")
    contexts, device = _contexts(options.contexts), _device(options.device)
    data = _data(options, [word for word in words if word not in runs])
    part = options.split if data is None else None
    subjects = [_subject(word, part, options.average) for word in runs]
    for subject in subjects:
        _check_positions(subject, max(contexts, default=1))
    texts = _texts(subjects, data)
    for subject, text in zip(subjects, texts, strict=True):
        for length in contexts:
            if length >= len(text.tokens):
                raise InputError(
                    f"{subject.name}: a context of {length} is not below the {len(text.tokens)} "
                    "tokens of the text; choose a shorter one, or a longer text."
                )
    width = max(len("run"), *(len(subject.name) for subject in subjects))
    print(f"Loss over {_described(data, options.split)}.")
    print(f"{'run':{width}}   context        tokens   nats/token    perplexity   bits/byte")
    for subject, text in zip(subjects, texts, strict=True):
        model = subject.load(device)
        for length in contexts or [subject.config.context_length]:
            found = score(model, text, length)
            bits = "unknown" if found.bits_per_byte is None else f"{found.bits_per_byte:.4f}"
            print(
                f"{subject.name:{width}}  {found.context_length:8}  {found.tokens:12,}  "
                f"{found.loss:11.4f}  {found.perplexity:12.2f}  {bits:>10}",
                flush=True,
            )
    return 0


def _evaluate_sweep(folder: Path, options: argparse.Namespace) -> int:
    """Bring all runs of a sweep up to what its study asks."""
    typed = [f"--{key}" for key in ("contexts", "data", "path", "average") if getattr(options, key)]
    if typed := [*typed, *(["--split"] if options.split != "val" else [])]:
        raise InputError(
            f"{typed[0]} is for single runs, and a sweep is measured on what its study asks; leave "
            "it out."
        )
    if failures := evaluate_sweep(folder, _device(options.device)):
        raise InputError(" ".join(failures))
    print(f"All that is asked is measured; python scripts/table.py {folder} shows it.")
    return 0


@dataclass(frozen=True)
class _Subject:
    """A model to evaluate; ``held_out`` is text of its own that it was not trained on."""

    name: str
    config: ModelConfig
    load: Callable[[str], Transformer]
    tokenizer: Tokenizer
    held_out: EncodedText | None = None


def _subject(word: str, part: str | None, average: bool) -> _Subject:
    """Open what is evaluated, with its own text only where a part of that is asked for."""
    folder = Path(word.removeprefix(HUGGING_FACE))
    if not word.startswith(HUGGING_FACE):
        run = open_run(folder)
        if part is not None and part not in run.data.held_out:
            raise InputError(
                f"{folder} has no test text, as it was trained without data.test_fraction; leave "
                "out --split test."
            )
        text = None if part is None else EncodedText.of(run.data.held_out[part])
        load = partial(run.model, average=average)
        return _Subject(folder.name, run.config.model, load, run.tokenizer, text)
    if average:
        raise InputError(f"--average is of runs, and {word} has one set of weights; leave it out.")
    # Imports transformers, which takes seconds, and may not be installed.
    from lm_experiments.interop import load_hf, read_folder

    config, tokenizer = read_folder(folder)
    return _Subject(folder.name, config, lambda on: load_hf(folder).float().to(on), tokenizer)


def _check_positions(subject: _Subject, length: int) -> None:
    try:
        sketch_model(subject.config).position.extend(length)
    except ValueError as error:
        raise InputError(f"{subject.name}: {error}") from None


def _contexts(text: str | None) -> list[int]:
    """Return the context lengths asked for, none for each run's own."""
    try:
        lengths = [int(part) for part in (text or "").split(",") if text]
    except ValueError:
        lengths = [0]
    if any(length < 1 for length in lengths):
        raise InputError(
            f"--contexts {text} is not a list of context lengths; type for example "
            "--contexts 64,128,256."
        )
    return lengths


def _data(options: argparse.Namespace, words: Sequence[str]) -> DataConfig | None:
    if options.data is not None and options.split != "val":
        raise InputError(f"--split {options.split} is of a run's own text; leave out --data.")
    if options.data is not None:
        return corpus_to_evaluate(options.data, options.path, words)
    for given in [*([f"--path {options.path}"] if options.path else []), *words]:
        raise InputError(f"{given} is read with --data alone; type for example --data text too.")
    return None


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        raise InputError(f"--device {name} cannot be used here; type --device cpu.") from None
    return name


def _described(data: DataConfig | None, part: str) -> str:
    if data is None:
        return f"the {PARTS[part]} text of each run"
    return f"all of {data.path}" if data.name == "text" else f"validation text of {data.name}"


def _texts(subjects: Sequence[_Subject], data: DataConfig | None) -> list[EncodedText]:
    """Return the text that each is evaluated on; those of one tokenizer share it."""
    if data is None:
        for subject in subjects:
            if subject.held_out is None:
                raise InputError(f"{subject.name} has no text of its own; type --data and a name.")
        return [subject.held_out for subject in subjects if subject.held_out is not None]
    encoded: dict[str, EncodedText] = {}
    for subject in subjects:
        name = subject.tokenizer.fingerprint
        if name not in encoded:
            text = encoded[name] = encode(documents_to_evaluate(data, CACHE), subject.tokenizer)
            if text.altered:
                print(
                    f"warning: {text.altered} documents do not come back from the tokens of "
                    f"{subject.name}; what is lost costs no bits, so bits/byte is not known.",
                    file=sys.stderr,
                )
    return [encoded[subject.tokenizer.fingerprint] for subject in subjects]
