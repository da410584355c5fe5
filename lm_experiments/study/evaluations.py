"""Measures a sweep's trained runs on what its study asks beside its own text and context.

It can be asked for at any time after training, as what a run lacks alone is measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from lm_experiments.data import DataConfig, Tokenizer
from lm_experiments.data.config import STREAMED
from lm_experiments.errors import InputError, not_installed
from lm_experiments.evaluation import EncodedText, documents_to_evaluate, encode, score
from lm_experiments.model import Transformer
from lm_experiments.rundir.evaluations import (
    CONTEXT,
    TASK,
    Asked,
    Evaluation,
    position_ends,
    read_evaluations,
    write_evaluations,
)
from lm_experiments.rundir.results import Result, read_result
from lm_experiments.rundir.study import TUNE, Study
from lm_experiments.rundir.sweeps import command_here, open_sweep
from lm_experiments.study.open_run import TrainedRun, corpus_to_evaluate, open_run

CACHE = Path(os.environ.get("LM_EXPERIMENTS_CACHE", "~/.cache/lm_experiments")).expanduser()


def check_evaluations(study: Study) -> None:
    """Raise InputError where the study asks for what could not be measured after training."""
    for label, words in study.evaluate.data.items() if study.evaluate else ():
        try:
            corpus = _corpus(words)
            # One that is streamed may have to be downloaded, which is for later.
            if corpus.name not in STREAMED:
                next(documents_to_evaluate(corpus, CACHE), None)
        except InputError as error:
            raise InputError(f"study.evaluate.data.{label}: {error}") from None
    if study.evaluate and study.evaluate.tasks:
        if find_spec("lm_eval") is None:
            raise InputError(not_installed("study.evaluate.tasks"))
        # Imports lm-eval, which takes seconds.
        from lm_experiments.interop.harness import check_tasks

        check_tasks(study.evaluate.tasks)


def evaluate_after(folder: Path, study: Study | None, is_remote: bool) -> None:
    """Measure the runs of a sweep that has just been trained, where its study asks for it.

    Where they were trained elsewhere, say what to type there.
    """
    if study is None or study.evaluate is None:
        return
    if is_remote:
        print(f"On a machine with its GPUs, type python scripts/evaluate.py {folder}.")
        return
    for failure in evaluate_sweep(folder, "cuda" if torch.cuda.is_available() else "cpu"):
        print(failure)


def evaluate_sweep(folder: Path, device: str) -> list[str]:
    """Measure what the runs of a sweep lack of what its study asks, a line printed for each run.

    Runs that were not trained to a usable end have nothing to measure. Every measure is kept at
    once, so that a command that was stopped goes on where it was.

    Returns:
        Why runs could not be measured, a sentence for each of them.
    """
    record = open_sweep(folder)
    if record.study is None or record.study.evaluate is None:
        raise InputError(
            f"The study of {folder} asks for no evaluations; add evaluate: {{contexts: [0.5, 1, "
            f"2, 4]}} to its file and repeat its command, which trains nothing again: "
            f"{command_here(folder, record)}"
        )
    asked, texts, failures = record.study.evaluate.asked, _Texts(), []
    names = dict.fromkeys(row.directory for row in record.runs if row.role != TUNE)
    for directory in [folder / name for name in names]:
        result = read_result(directory)
        if result is None or not result.usable:
            continue
        try:
            if done := _evaluate_run(directory, result, asked, texts, device):
                print(f"Evaluated {directory.name}: {', '.join(done)}.", flush=True)
        except (InputError, OSError) as error:
            failures.append(f"{directory.name} is not evaluated: {error}")
    return failures


class _Texts:
    """The corpora that are asked for, encoded once for each tokenizer."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[tuple[str, ...], str], EncodedText] = {}

    def of(self, words: Sequence[str], tokenizer: Tokenizer) -> EncodedText:
        """Return the text that some words name, in the tokens of a run."""
        key = tuple(words), tokenizer.fingerprint
        if key not in self._encoded:
            self._encoded[key] = encode(documents_to_evaluate(_corpus(words), CACHE), tokenizer)
        return self._encoded[key]


def _evaluate_run(
    directory: Path, result: Result, asked: Sequence[Asked], texts: _Texts, device: str
) -> list[str]:
    """Measure what a run lacks; return the titles of what was measured."""
    trained = result.eval_context or 0
    found = read_evaluations(directory, result.val_loss)
    missing = [each for each in asked if each.key(trained) not in found]
    if not missing:
        return []
    run = open_run(directory)
    model = run.model(device)
    for each in missing:
        found[each.key(trained)] = _measured(run, model, each, texts)
        write_evaluations(directory, result.val_loss, found)
    return [each.title for each in missing]


def _measured(run: TrainedRun, model: Transformer, asked: Asked, texts: _Texts) -> Evaluation:
    trained = run.config.model.context_length
    if asked.kind == CONTEXT:
        text = EncodedText.of(run.data.test or run.data.val)
        return _at_context(model, text, trained, asked.tokens(trained))
    if asked.kind == TASK:
        return _at_task(run, model, asked.title)
    text = texts.of(asked.words, run.tokenizer)
    if len(text.tokens) < 2:
        return Evaluation(refused="no text")
    found = score(model, text, trained)
    return Evaluation(trained, trained, found.loss, found.tokens, found.bits_per_byte)


def _at_context(model: Transformer, text: EncodedText, trained: int, length: int) -> Evaluation:
    """Return the loss at a context length, whole and by position, or why there is none."""
    if length >= len(text.tokens):
        return Evaluation(length, trained, refused=f"text of {len(text.tokens)} tokens")
    try:
        model.position.extend(length)
    except ValueError:
        return Evaluation(length, trained, refused=f"trained to {trained}")
    found, ends = score(model, text, length), position_ends(trained, length)
    by_position, counts = found.between(ends)
    whole = found.loss, found.tokens, found.bits_per_byte
    return Evaluation(length, trained, *whole, ends, by_position, counts)


def _at_task(run: TrainedRun, model: Transformer, task: str) -> Evaluation:
    # Imports lm-eval, which takes seconds.
    from lm_experiments.interop.harness import score_task

    trained, found = run.config.model.context_length, score_task(model, run.tokenizer, task)
    if found is None:
        return Evaluation(trained, trained, refused="no score of which more is better")
    return Evaluation(trained, trained, score=found[1], measure=found[0])


def _corpus(words: Sequence[str]) -> DataConfig:
    name = next(word for word in words if word.startswith("data=")).removeprefix("data=")
    return corpus_to_evaluate(name, None, [word for word in words if word.startswith("data.")])
