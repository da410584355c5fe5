"""A real sweep is all yes; what was edited by hand afterwards is found, and named."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.commands import Answer, python

from lm_experiments import registry
from lm_experiments.rundir.documents import (
    DocumentLosses,
    read_document_losses,
    write_document_losses,
)

Check = Callable[..., dict[str, str]]

# The questions, by their first words.
PLANNED, HASH, RESULT = "all planned", "config.yaml", "each result.json"
DOCUMENTS, TEXT, CODE = "documents.npz", "the same text", "the same code"
SETTINGS, SEEDS, TABLE = "the same settings", "seeds distinct", "table.json"
LOSSES, LEDGER, FIRST = "losses computed anew", "the ledger", "all declared before"
FILES = (PLANNED, HASH, RESULT, DOCUMENTS, TEXT, CODE, SETTINGS, SEEDS, TABLE)
QUESTIONS = (*FILES, LEDGER, FIRST, LOSSES)

_made: list[Path] = []


@pytest.fixture
def folder(train: Callable[..., Answer], tmp_path: Path) -> Path:
    """A copy of a sweep of two arms and two seeds, which all tests share."""
    if not _made:
        answer = train("-m", "ffn=swiglu,relu", "seed=0,1", "name=made")
        assert answer.code == 0, answer.err
        _made.append(Path("runs/made").resolve())
    there = tmp_path / "copy"
    shutil.copytree(_made[0], there)
    return there


@pytest.fixture
def check(command: Callable[..., Answer]) -> Check:
    """Check a folder; return the line of each question by its first words."""

    def call(folder: Path, code: int, *words: str) -> dict[str, str]:
        answer = command("table", folder, "--check", *words)
        assert answer.code == code, answer.text
        lines = answer.out.splitlines()
        assert len(lines) == len(QUESTIONS), answer.out
        return {name: next(line for line in lines if f"  {name}" in line) for name in QUESTIONS}

    return call


def run_of(folder: Path, arm: str = "swiglu", seed: int = 0) -> Path:
    [run] = folder.glob(f"{arm}-s{seed}-*")
    return run


def edit(path: Path, change: Callable[[Any], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def noes(lines: dict[str, str]) -> set[str]:
    return {name for name, line in lines.items() if line.startswith("no ")}


def test_a_real_sweep_is_all_yes_and_nothing_is_written(folder: Path, check: Check) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    lines = check(folder, 0)
    assert all(line.startswith("yes ") for line in lines.values()), lines
    assert "4 runs, all equal to the last bit" in lines[LOSSES]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_loss_edited_by_hand_is_named_with_both_numbers(folder: Path, check: Check) -> None:
    run = run_of(folder)
    loss = json.loads((run / "result.json").read_text())["val_loss"]
    edit(run / "result.json", lambda result: result.update(val_loss=loss - 0.01))
    lines = check(folder, 1)
    assert noes(lines) == {RESULT, DOCUMENTS, TABLE, LOSSES}
    for name in noes(lines):
        assert run.name in lines[name]
        assert repr(loss - 0.01) in lines[name]
    assert repr(loss) in lines[LOSSES]


def test_a_loss_edited_everywhere_is_not_that_of_its_checkpoint(folder: Path, check: Check) -> None:
    """The smallest change that print shows, in every file that holds the loss."""
    run = run_of(folder)
    result = json.loads((run / "result.json").read_text())
    loss, tokens = result["val_loss"], result["val_tokens"]
    better = loss - 5e-5
    for path in (run / "result.json", run / "metrics.jsonl", folder / "table.json"):
        path.write_text(path.read_text().replace(repr(loss), repr(better)))
    edit(run / "result.json", lambda values: values.update(perplexity=float(np.exp(better))))
    documents = read_document_losses(run)
    assert documents is not None
    sums = documents.sums * (better * tokens / documents.sums.sum())
    write_document_losses(run, DocumentLosses(sums, documents.tokens))
    lines = check(folder, 1)
    assert noes(lines) == {LOSSES}
    assert run.name in lines[LOSSES] and repr(loss) in lines[LOSSES]


def test_an_edited_ledger_is_found(folder: Path, check: Check) -> None:
    path = folder / "ledger.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    path.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    found = check(folder, 0)
    assert found[LEDGER].startswith("not known ") and found[FIRST].startswith("not known ")
    path.write_text("\n".join([*lines, lines[1].replace("[0, 1]", "[0, 1, 2]")]) + "\n")
    found = check(folder, 1)
    assert noes(found) == {LEDGER}
    assert "line 4 does not follow on the line before" in found[LEDGER]
    assert "it ends with" in found[LEDGER]


def test_what_was_declared_after_results_is_named(
    train: Callable[..., Answer], folder: Path, check: Check
) -> None:
    shutil.copytree(folder, "runs/grown")
    assert train("-m", "ffn=swiglu,relu,gelu", "seed=0,1", "name=grown").code == 0
    found = check(Path("runs/grown"), 1)
    assert noes(found) == {FIRST}
    assert "gelu - swiglu: declared on " in found[FIRST]


def drop_run(record: Any) -> None:
    record["runs"].pop()


def other_hash(record: Any) -> None:
    record["runs"][0]["config_hash"] = "0" * 64


def other_seed(record: Any) -> None:
    record["runs"][0]["seed"] = 7


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (drop_run, {PLANNED, SEEDS}),
        (other_hash, {HASH, RESULT}),
        (other_seed, {HASH, RESULT, SEEDS, LEDGER}),
    ],
)
def test_an_edited_plan_is_no_longer_that_of_the_runs(
    change: Callable[[Any], None], expected: set[str], folder: Path, check: Check
) -> None:
    edit(folder / "sweep.json", change)
    assert noes(check(folder, 1)) == expected


def test_an_edited_configuration_has_another_hash(folder: Path, check: Check) -> None:
    run = run_of(folder)
    path = run / "config.yaml"
    text = path.read_text()
    assert "lr: 0.003" in text
    path.write_text(text.replace("lr: 0.003", "lr: 0.004"))
    lines = check(folder, 1)
    assert noes(lines) == {HASH}
    assert run.name in lines[HASH]
    path.write_text("{")
    assert HASH in noes(check(folder, 1))


def edit_result(**values: Any) -> Callable[[Path], None]:
    return lambda run: edit(run / "result.json", lambda result: result.update(values))


def edit_identity(run: Path) -> None:
    def change(identity: Any) -> None:
        identity["values"]["optimizer.lr"] = 1.0

    edit(run / "identity.json", change)


def edit_documents(run: Path) -> None:
    found = read_document_losses(run)
    assert found is not None
    write_document_losses(run, DocumentLosses(found.sums * 1.00001, found.tokens))


def drop_steps(run: Path) -> None:
    edit(run / "result.json", lambda result: result.update(steps=2))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (edit_result(seed=5), {RESULT}),
        (edit_result(code_hash="0" * 64), {CODE}),
        (edit_result(tokenizer_hash="0" * 64), {TEXT}),
        (edit_result(data_hash="0" * 64), {TEXT, HASH}),
        (edit_result(config_hash="0" * 64), {HASH, RESULT}),
        (edit_identity, {HASH, SETTINGS}),
        (edit_documents, {DOCUMENTS}),
        (drop_steps, {RESULT}),
        (lambda run: shutil.rmtree(run), {PLANNED, HASH}),
    ],
)
def test_what_was_edited_in_a_run_is_named(
    change: Callable[[Path], None], expected: set[str], folder: Path, check: Check
) -> None:
    run = run_of(folder)
    change(run)
    lines = check(folder, 1)
    assert noes(lines) == expected
    assert all(run.name in lines[name] for name in expected)


def test_a_table_with_another_family_is_found(folder: Path, check: Check) -> None:
    edit(folder / "table.json", lambda table: table["rule"].update(contrasts=0))
    assert "Holm's family counts 0, declared: 1" in check(folder, 1)[TABLE]
    edit(folder / "table.json", lambda table: table["contrasts"].clear())
    assert "relu - swiglu is missing" in check(folder, 1)[TABLE]


def test_what_is_not_there_is_not_known(folder: Path, check: Check) -> None:
    run = run_of(folder)
    shutil.rmtree(run / "checkpoints")
    (run / "documents.npz").unlink()
    (folder / "table.json").unlink()
    lines = check(folder, 0)
    unknown = {name for name, line in lines.items() if line.startswith("not known ")}
    assert unknown == {DOCUMENTS, TABLE, LOSSES}
    assert run.name in lines[LOSSES] and run.name in lines[DOCUMENTS]


MINE = """
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "mine", NormOptions)
class Mine(RMSNorm):
    \"\"\"RMSNorm under another name.\"\"\"
"""


def test_code_of_the_users_own_is_named_again(
    train: Callable[..., Answer], check: Check, tmp_path: Path
) -> None:
    """No code is run from a run directory; without it, what rests on it is not known."""
    (tmp_path / "mine.py").write_text(MINE)
    code = f"code_paths=[{tmp_path / 'mine.py'}]"
    assert train("-m", "norm=mine", "seed=0", code, "name=own").code == 0
    forget("mine")
    lines = check(Path("runs/own"), 0)
    unknown = {name for name, line in lines.items() if line.startswith("not known ")}
    assert unknown == {HASH, LOSSES}
    assert "code_paths=[" in lines[LOSSES]
    assert all(line.startswith("yes ") for line in check(Path("runs/own"), 0, code).values())


def forget(name: str) -> None:
    """Let a component be unknown, as it is to a process that has not loaded its file."""
    del registry._components["norm"][name]
    for module in [name for name in sys.modules if name.startswith("lm_experiments_code_")]:
        del sys.modules[module]


def test_words_that_are_not_understood_are_refused(
    folder: Path, refused: Callable[..., str]
) -> None:
    assert "loses is not understood" in refused("table", folder, "--check", "loses")
    assert "There is no folder loses" in refused("table", folder, "loses")


def test_a_table_alone_needs_no_torch() -> None:
    done = python("import sys, lm_experiments.cli.table; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False"
