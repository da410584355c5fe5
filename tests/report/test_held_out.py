"""Where runs have a test loss, the table is about it; trials are about validation."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from synthetic_studies import StudyFactory

from lm_experiments.report import Table, build_table, collect, write_report
from lm_experiments.report.pictures.sensitivity import responses
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.notes import legend, notes

HELD_OUT = "The test text was held out from training and from tuning, and measured once."


def with_test_losses(study: StudyFactory, **more: object) -> StudyFactory:
    """Give every run a test loss by which nope is the best arm."""
    for arm in study.arms:
        for seed in (*study.seeds, 100):
            loss = study.loss(arm, seed) + 1 - 0.5 * (arm == "nope")
            held = {"test_loss": loss, "test_bits_per_byte": loss / 3, "test_tokens": 1234}
            study.changes[arm, seed] = {**held, **more}
    return study


def table_of(root: Path) -> Table:
    return build_table(collect(root))


def test_without_test_losses_the_table_is_about_validation(study: StudyFactory) -> None:
    validated = table_of(study.whole())
    assert (validated.metric, validated.rows[0].arm) == ("val_loss", "baseline")
    assert HELD_OUT not in legend(validated)
    assert not any("test" in column.title for column in columns(validated))


def test_arms_are_compared_by_their_test_loss(study: StudyFactory) -> None:
    table = table_of(with_test_losses(study).whole())
    assert (table.metric, table.rows[0].arm) == ("test_loss", "nope")
    found = {column.title: column.text(table.rows[0]) for column in columns(table)}
    losses = [study.loss("nope", seed) + 0.5 for seed in study.seeds]
    assert found["test loss"] == f"{sum(losses) / len(losses):.4f}"
    assert found["test bits/byte"] == f"{sum(losses) / len(losses) / 3:.4f}"
    assert not {"val loss", "bits/byte"} & set(found)
    assert legend(table).startswith("Test loss is in nats per token")
    assert HELD_OUT in legend(table)
    assert any("test tokens 1,234" in line for line in notes(table))


def test_the_margin_is_for_the_test_loss_too(study: StudyFactory) -> None:
    table = table_of(with_test_losses(study).whole())
    assert table.plan.margin == study.margin
    verdicts = {item.arm: item.verdict for item in table.comparisons}
    assert (verdicts["nope"], verdicts["layernorm"]) == ("better", "equivalent")


def test_programs_read_the_test_loss(study: StudyFactory) -> None:
    table = table_of(with_test_losses(study).whole())
    [nope] = [row for row in csv.DictReader(io.StringIO(csv_text(table))) if row["arm"] == "nope"]
    assert float(nope["test_loss_mean"]) == pytest.approx(3 * float(nope["test_bits_per_byte"]))
    content = json.loads(json_text(table))
    assert (content["metric"], content["unit"]) == ("test_loss", "nats per token")
    [run, *_] = next(arm for arm in content["arms"] if arm["arm"] == "nope")["main"]["runs"]
    assert run["test_loss"] == study.changes["nope", run["seed"]]["test_loss"]
    assert run["val_loss"] == study.loss("nope", run["seed"])


def test_a_run_without_a_test_loss_leaves_the_table_to_validation(study: StudyFactory) -> None:
    with_test_losses(study).changes["silu", 2] = {}
    assert table_of(study.whole()).metric == "val_loss"


def test_a_failed_run_needs_no_test_loss(study: StudyFactory) -> None:
    with_test_losses(study).broken["silu", 2] = {
        "status": "failed",
        "val_loss": None,
        "test_loss": None,
    }
    assert table_of(study.whole()).metric == "test_loss"


def test_tokenizers_are_compared_by_test_bits_per_byte(study: StudyFactory) -> None:
    study.arms = {"baseline": [], "bytes": ["tokenizer=bytes"]}
    with_test_losses(study)
    for seed in study.seeds:
        study.changes["bytes", seed] |= {"tokenizer_hash": "b" * 64, "data_hash": "d" * 64}
    table = table_of(study.whole())
    assert (table.metric, table.plan.margin) == ("test_bits_per_byte", None)
    assert any("compared by bits per byte" in line for line in notes(table))


def test_an_arm_without_bits_per_byte_is_said_to_have_none(study: StudyFactory) -> None:
    study.arms = {"baseline": [], "bytes": ["tokenizer=bytes"]}
    study.changes = {
        ("bytes", seed): {"tokenizer_hash": "b" * 64, "bits_per_byte": None} for seed in study.seeds
    }
    lines = notes(table_of(study.whole()))
    said = "Warning: 'bytes' cannot be compared: bits per byte are empty where a tokenizer"
    assert sum(line.startswith(said) for line in lines) == 1


def test_trials_are_drawn_by_validation_loss(study: StudyFactory, figures: list[Figure]) -> None:
    study.tuned = True
    table = table_of(with_test_losses(study).whole())
    assert table.metric == "test_loss"
    nope = next(response for response in responses(table) if response.arm == "nope")
    assert min(nope.losses.values()) == study.loss("nope", 100, 1e-2)
    write_report(study.root)
    titles = [axes.get_ylabel() for figure in figures for axes in figure.axes]
    assert "validation loss (nats per token)" in titles
