"""Two sources of noise in a table: its columns, its sentences, and when they are left out."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic_runs import SweepFactory, result_of
from synthetic_studies import StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.statistics.noise import document_noise
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.text_notes import text_notes
from lm_experiments.rundir.documents import DocumentLosses, write_document_losses

DOCUMENTS = 40
TOKENS = np.random.default_rng(1).integers(20, 60, DOCUMENTS)


def add(
    sweep: SweepFactory,
    arm: str,
    seed: int,
    effect: NDArray[np.float64],
    tokens: NDArray[np.int64] = TOKENS,
    exists: bool = True,
    **changes: object,
) -> None:
    """A run whose documents lose `effect` nats per token more than 3, and what its seed brings."""
    generator = np.random.default_rng((seed, len(arm)))
    losses = 3.0 + effect + 0.001 * generator.normal(size=len(tokens)) + 0.002 * seed
    sums = losses * tokens
    result = result_of(arm, seed, float(sums.sum() / tokens.sum()), **changes)
    directory = sweep.run(arm, seed, result=result)
    if exists:
        write_document_losses(directory, DocumentLosses(sums, tokens))


def table_of(sweep: SweepFactory, effect: NDArray[np.float64], seeds: int = 3) -> Table:
    for seed in range(seeds):
        add(sweep, "base", seed, np.zeros(DOCUMENTS))
        add(sweep, "new arm", seed, effect)
    return build_table(collect(sweep.plan()))


def cells(table: Table, arm: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.arm == arm)
    return {column.title: column.text(row) for column in columns(table)}


# On average .02 higher; as all documents are, or as a few are that another text may not have.
EVEN = np.full(DOCUMENTS, 0.02)
UNEVEN = np.where(np.arange(DOCUMENTS) < 2, 0.4, 0.0)


def test_every_format_splits_the_error(sweep: SweepFactory) -> None:
    table = table_of(sweep, EVEN)
    [item] = table.comparisons
    noise, found = item.noise, item.contrast
    assert noise and found and noise.seed_error is not None
    assert noise.difference == pytest.approx(found.mean, abs=1e-12)
    assert noise.seed_error == pytest.approx(found.error, rel=1e-9)
    shown = cells(table, "new arm")
    assert (shown["se seeds"], shown["se docs"], shown["interval, new text"]) == (
        f"{noise.seed_error:.4f}",
        f"{noise.document_error:.4f}",
        f"[{noise.low:+.4f}, {noise.high:+.4f}]",
    )
    assert cells(table, "base")["se docs"] == "-"
    record = {r["arm"]: r for r in csv.DictReader(io.StringIO(csv_text(table)))}["new arm"]
    assert (record["documents"], float(record["se_documents"])) == ("40", noise.document_error)
    assert float(record["new_text_low_95"]) == noise.low
    assert json.loads(json_text(table))["contrasts"][0]["noise"] == dataclasses.asdict(noise)
    assert "over the 40 documents measured on" in text_notes(table)[0]


def test_a_verdict_that_hangs_on_a_few_documents_is_named(sweep: SweepFactory) -> None:
    table = table_of(sweep, UNEVEN)
    [item] = table.comparisons
    assert item.verdict == "worse" and item.contrast and item.contrast.low and item.noise
    assert item.contrast.low > 0 > item.noise.low
    [line] = [line for line in text_notes(table) if line.startswith("For new arm the verdict")]
    assert "for other text of the same kind the difference is unresolved" in line


def test_a_verdict_that_all_documents_share_is_not(sweep: SweepFactory) -> None:
    table = table_of(sweep, EVEN)
    assert table.comparisons[0].verdict == "worse"
    assert not any(line.startswith("For ") for line in text_notes(table))


def test_below_twenty_documents_the_error_is_not_shown(sweep: SweepFactory) -> None:
    few = TOKENS[:19]
    for seed in range(3):
        add(sweep, "base", seed, np.zeros(19), few)
        add(sweep, "new arm", seed, np.full(19, 0.02), few)
    table = build_table(collect(sweep.plan()))
    assert table.comparisons[0].noise is None and "se docs" not in cells(table, "new arm")
    [line] = text_notes(table)
    assert line.startswith("The text measured on has 19 documents, fewer than the 20")


@pytest.mark.parametrize(
    "case", ["lacks a file", "other tokens", "other text", "other loss", "fails"]
)
def test_the_error_is_left_out_where_runs_do_not_share_their_documents(
    sweep: SweepFactory, case: str
) -> None:
    for seed in range(3):
        add(sweep, "base", seed, np.zeros(DOCUMENTS))
        last = seed == 2
        tokens = TOKENS + 1 if case == "other tokens" and last else TOKENS
        changes: dict[str, object] = {}
        if case == "other text" and last:
            changes = {"data_hash": "e" * 64}
        if case == "other loss" and last:
            changes = {"val_loss": 3.0, "bits_per_byte": 1.5}
        if case == "fails" and last:
            changes = {"outcome": "diverged"}
        exists = case != "lacks a file" or not last
        add(sweep, "new arm", seed, EVEN, tokens, exists, **changes)
    table = build_table(collect(sweep.plan()), allow_mixed=True)
    assert table.comparisons[0].noise is None
    assert text_notes(table) == []


def test_a_first_document_without_tokens_is_left_out(sweep: SweepFactory) -> None:
    tokens = np.array([0, *TOKENS])
    for seed in range(3):
        add(sweep, "base", seed, np.zeros(DOCUMENTS + 1), tokens)
        add(sweep, "new arm", seed, np.array([0, *UNEVEN]), tokens)
    [item] = build_table(collect(sweep.plan())).comparisons
    assert item.noise and item.noise.documents == DOCUMENTS


def test_one_seed_has_the_error_of_documents_and_no_interval(sweep: SweepFactory) -> None:
    table = table_of(sweep, EVEN, seeds=1)
    found = cells(table, "new arm")
    assert not {"se seeds", "interval, new text"} & set(found)
    assert found["se docs"] != "-"
    record = {r["arm"]: r for r in csv.DictReader(io.StringIO(csv_text(table)))}["new arm"]
    assert (record["new_text_low_95"], record["se_seeds"]) == ("", "")


def test_runs_without_documents_have_no_columns(study: StudyFactory) -> None:
    table = build_table(collect(study.whole()))
    assert text_notes(table) == []
    assert not {"se seeds", "se docs", "interval, new text"} & set(cells(table, "silu"))


def test_a_damaged_file_is_named(sweep: SweepFactory) -> None:
    table_of(sweep, EVEN)
    next(sweep.root.glob("base-s0-*/documents.npz")).write_bytes(b"PK")
    with pytest.raises(InputError, match=r"documents\.npz"):
        build_table(collect(sweep.plan()))


def test_a_text_of_many_documents_takes_no_square_of_memory() -> None:
    sums = np.random.default_rng(0).normal(size=(2, 30_000))
    tracemalloc.start()
    found = document_noise(sums, np.ones(30_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.documents == 30_000
    assert peak < 100e6
