"""What a reader finds in the table: every arm, honest counts, signs, and the lines below."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_runs import SweepFactory, failed, grid, history, result_of, write_run

from lm_experiments.errors import InputError
from lm_experiments.report import Table, build_table, collect, write_report
from lm_experiments.report.table.columns import columns, si
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.notes import ONE_SEED, headline, legend, notes
from lm_experiments.report.table.terminal import show_table
from lm_experiments.report.table.warnings import warnings


def table_of(root: Path, baseline: str | None = None, allow_mixed: bool = False) -> Table:
    """The table of a sweep's folder."""
    return build_table(collect(root), baseline, allow_mixed)


def cells(table: Table, arm: str) -> dict[str, str]:
    """One arm's cells by column title."""
    row = next(row for row in table.rows if row.arm == arm)
    return {column.title: column.text(row) for column in columns(table)}


def printed(table: Table, width: int | None) -> str:
    """The table as a terminal of this width shows it, or as a pipe gets it."""
    out = io.StringIO()
    terminal = width is not None
    show_table(table, Console(file=out, width=width, force_terminal=terminal, color_system=None))
    return out.getvalue()


def test_means_and_paired_differences(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.10, 1: 3.20, 2: 3.30})
    sweep.done("new", {0: 3.14, 1: 3.25, 2: 3.33, 5: 9.0})
    table = table_of(sweep.plan())
    base, new = cells(table, "base"), cells(table, "new")
    assert (base["val loss"], base["sd"], base["95 % +/-"]) == ("3.2000", "0.1000", "0.2484")
    assert (base["n"], base["vs baseline"], base["95 % interval"]) == ("3 of 3", "(baseline)", "-")
    assert (new["vs baseline"], new["95 % interval"]) == ("+0.0400", "[+0.0152, +0.0648]")
    assert (new["p (Holm)"], new["verdict"]) == ("0.020", "worse")
    assert (base["parameters"], base["FLOPs/token"]) == ("4,213,760", "25.3M")


def test_another_baseline_turns_the_sign(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.10})
    sweep.done("new", {0: 3.14})
    table = table_of(sweep.plan(), "new")
    assert cells(table, "base")["vs baseline"] == "-0.0400"
    assert cells(table, "new")["vs baseline"] == "(baseline)"


def test_failures_and_waiting_runs_keep_their_rows(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10})
    sweep.run("b", result=failed("b", 0, "RuntimeError", "mat1 and mat2"))
    sweep.run("c", result=failed("c", 0, "ValueError", "other"))
    sweep.run("d", exists=False)
    sweep.run("e", metrics=history(3.0, 0)[:2])
    sweep.done("f", {0: 3.05})
    table = table_of(sweep.plan())
    assert [row.arm for row in table.rows] == ["f", "a", "d", "e", "b", "c"]
    assert [row.outcome for row in table.rows[2:]] == [
        "waiting",
        "interrupted",
        "FAILED: RuntimeError: mat1 and mat2",
        "FAILED: ValueError: other",
    ]
    assert headline(table).startswith("UNFINISHED: 4 of 6 runs finished")
    failures = [line for line in notes(table) if line.startswith("FAILED")]
    assert len(failures) == 2
    assert "b seed 0: RuntimeError: mat1 and mat2" in failures[0]


def test_a_diverged_run_counts_against_its_arm_and_not_into_the_mean(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10, 1: 3.30})
    sweep.run("a", 2, result=result_of("a", 2, 9.9, outcome="diverged"))
    sweep.done("b", {0: 3.0, 1: 3.1, 2: 3.2})
    table = table_of(sweep.plan())
    found = cells(table, "a")
    assert (found["val loss"], found["n"]) == ("3.2000", "2 of 3")
    assert found["outcome"] == "2 of 3 ok, 1 diverged"
    assert cells(table, "b")["outcome"] == "ok"
    assert cells(table, "b")["vs baseline"] == "-0.1500"


def test_all_seeds_failing_is_said_once(sweep: SweepFactory) -> None:
    for seed in range(2):
        sweep.run("a", seed, result=failed("a", seed, "E", "word " * 40))
    (row,) = table_of(sweep.plan()).rows
    assert row.outcome.startswith("FAILED (2 of 2): E: word word")
    assert row.outcome.endswith("word...")


def test_one_seed_is_flagged_and_shows_no_interval(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10})
    sweep.done("b", {0: 3.20})
    table = table_of(sweep.plan())
    assert ONE_SEED in notes(table)
    titles = {column.title for column in columns(table)}
    assert not titles & {"sd", "95 % +/-", "95 % interval", "verdict"}
    assert ONE_SEED in markdown(table)


def test_several_seeds_are_described(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10, 1: 3.2}, threads=2)
    sweep.done("b", {0: 3.10})
    lines = " ".join(notes(table_of(sweep.plan())))
    assert ONE_SEED not in lines
    assert "Arms with n = 1 have no interval" in lines
    assert "Seeds 0, 1; steps 1,000; training tokens 4,096,000" in lines
    assert "data dddddddddddd; commit aaaaaaaaaaaa; threads 2." in lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data_hash": "e" * 64}, "data_hash: dddddddddddd (1 of 2), eeeeeeeeeeee (1 of 2)"),
        ({"val_tokens": 5}, "val_tokens: 40,960 (1 of 2), 5 (1 of 2)"),
        ({"tokens": 5}, "differ in tokens"),
        ({"commit": "b" * 40}, "differ in code"),
        ({"dirty": True}, "aaaaaaaaaaaa+dirty"),
    ],
)
def test_runs_that_are_not_comparable_are_named(
    sweep: SweepFactory, change: dict[str, object], said: str
) -> None:
    sweep.done("a", {0: 3.10})
    sweep.done("b", {0: 3.11}, **change)
    (warning,) = warnings(table_of(sweep.plan(), allow_mixed=True))
    assert warning.startswith("Warning: the runs differ in")
    assert said in warning


def test_comparable_runs_give_no_warning(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10})
    sweep.run("b", result=failed("b", 0, "E", "x", tokens=3, data_hash=None))
    assert warnings(table_of(sweep.plan())) == []


def test_repeated_seeds_unequal_sizes_and_strays_are_named(sweep: SweepFactory) -> None:
    for learning_rate, total in ((0.1, 10), (0.2, 11)):
        result = result_of("a", 0, 3.0, parameters={"total": total})
        write_run(sweep.root / f"a-{learning_rate}", "a", 0, result)
    text = " ".join(warnings(table_of(sweep.root)))
    assert "more than one run for 'a' seed 0" in text
    assert "'a' differ in their number of parameters" in text
    sweep.done("b", {0: 3.0})
    assert "sweep.json does not plan them: a-0.1, a-0.2" in warnings(table_of(sweep.plan()))[0]


def test_learning_rates_are_a_column_only_when_they_differ(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10})
    assert "learning rate" not in cells(table_of(sweep.plan()), "a")
    sweep.done("b", {0: 3.10}, learning_rate=3e-4)
    assert cells(table_of(sweep.plan()), "b")["learning rate"] == "0.0003"


def test_the_loss_of_averaged_weights_is_a_column_where_there_is_one(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10})
    assert "val loss of average" not in [
        c.title for c in columns(table_of(sweep.plan())) if c.shown
    ]
    sweep.done("b", {0: 3.10, 1: 3.2}, average_val_loss=3.05)
    table = table_of(sweep.plan())
    assert cells(table, "b")["val loss of average"] == "3.0500"
    assert cells(table, "a")["val loss of average"] == "-"


def test_axes_become_columns_only_when_every_arm_sets_exactly_them(sweep: SweepFactory) -> None:
    grid(sweep, 1)
    table = table_of(sweep.plan("placement", "ffn", "position"))
    found = cells(table, "post relu rope")
    assert (found["placement"], found["ffn"], found["position"]) == ("post", "relu", "rope")
    assert "arm" not in found
    sweep.done("other", {0: 3.0})
    assert cells(table_of(sweep.plan("placement", "ffn", "position")), "other")["arm"] == "other"


def test_unknown_baseline_lists_the_arms_and_the_nearest(sweep: SweepFactory) -> None:
    sweep.done("pre relu rope", {0: 3.10})
    sweep.done("post relu rope", {0: 3.10})
    with pytest.raises(InputError) as caught:
        table_of(sweep.plan(), "post rope")
    assert "'pre relu rope', 'post relu rope'" in str(caught.value)
    assert "did you mean --baseline 'post relu rope'" in str(caught.value)


def test_a_baseline_without_a_usable_run_is_said(sweep: SweepFactory) -> None:
    sweep.run("a", result=failed("a", 0, "E", "x"))
    sweep.done("b", {0: 3.10})
    table = table_of(sweep.plan())
    assert cells(table, "b")["vs baseline"] == "-"
    assert "The baseline 'a' has no usable run: no differences." in notes(table)


def test_markdown_aligns_numbers_and_escapes_cells(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10})
    sweep.run("b|c", result=failed("b|c", 0, "E", "x | <br>\ny"))
    lines = markdown(table_of(sweep.plan()), {"curves.png": "Losses"}).splitlines()
    rules = next(line for line in lines if line.startswith("| :---"))
    assert "---: | ---:" in rules
    failed_row = next(line for line in lines if line.startswith("| b\\|c"))
    assert "FAILED: E: x \\| &lt;br> y" in failed_row
    assert lines[-1] == "![Losses](curves.png)"


def test_csv_keeps_full_precision(sweep: SweepFactory) -> None:
    grid(sweep, 3)
    table = table_of(sweep.plan("placement", "ffn", "position"))
    records = list(csv.DictReader(io.StringIO(csv_text(table))))
    assert len(records) == 12
    best = table.rows[0]
    assert best.loss is not None
    assert best.difference is not None
    assert float(records[0]["val_loss_mean"]) == best.loss.mean
    assert float(records[0]["difference_sd"]) == best.difference.sd
    assert records[0]["position"] == best.levels[2]
    assert records[0]["parameters"] == "4213760"
    baseline = next(record for record in records if record["baseline"] == "true")
    assert baseline["difference_mean"] == ""


def test_a_terminal_of_100_columns_gets_no_wider_line(sweep: SweepFactory) -> None:
    grid(sweep, 3)
    sweep.planned.reverse()
    table = table_of(sweep.plan("placement", "ffn", "position"))
    narrow = printed(table, 100)
    assert max(len(line) for line in narrow.splitlines()) <= 100
    assert "swiglu  sinusoidal" in narrow
    assert "Too narrow for plain p (Holm), non-embedding, tokens/s" in narrow
    assert "Too narrow" not in printed(table, 240)


def test_a_pipe_gets_every_column_on_one_line(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.10, 1: 3.2})
    sweep.run("b", result=failed("b", 0, "E", "x" * 50 + " [red]y"))
    text = printed(table_of(sweep.plan()), None)
    assert "x [red]y" in text
    header = next(line for line in text.splitlines() if line.startswith("arm"))
    assert "non-embedding" in header
    assert "outcome" in header


def test_the_same_runs_give_the_same_bytes(sweep: SweepFactory) -> None:
    grid(sweep, 2)
    root = sweep.plan("placement", "ffn", "position")
    first = {path: path.read_bytes() for path in write_report(root).files}
    # The page also shows the ledger, to which each of them adds a look.
    assert first.pop(root / "report.html")
    assert {path.name for path in first} == {
        "table.md",
        "table.csv",
        "table.json",
        "table.tex",
        "curves.png",
        "forest.png",
        "effects.png",
    }
    write_report(root)
    assert {path: path.read_bytes() for path in first} == first


def test_a_thousand_run_directories(sweep: SweepFactory) -> None:
    for arm in range(250):
        sweep.done(f"arm {arm:03d}", dict.fromkeys(range(4), 3.0 + arm / 1000))
    report = write_report(sweep.plan())
    assert len(report.table.rows) == 250
    assert all(row.loss is not None and row.loss.n == 4 for row in report.table.rows)
    assert "1000 of 1000 runs finished" in headline(report.table)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (999, "999"), (999_999, "1M"), (25282560, "25.3M"), (1.5e9, "1.5G")],
)
def test_si_prefixes(value: float | None, text: str) -> None:
    assert si(value) == text


def test_equal_results_make_equal_reports_whatever_speed_was_measured(tmp_path: Path) -> None:
    tables = []
    for name, speed in (("one", 20311.5), ("two", 9000.25)):
        factory = SweepFactory(tmp_path / name / "sweep")
        factory.done("base", {0: 3.10}, tokens_per_second=speed)
        tables.append(table_of(factory.plan()))
    assert markdown(tables[0]) == markdown(tables[1])
    assert "20,311" not in markdown(tables[0])
    assert "20311.5" in csv_text(tables[0])
    assert "20,31" in printed(tables[0], 200)


def test_runs_that_end_clearly_above_their_best_are_said(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.10})
    over = {"outcome": "degraded", "best_val_loss": 2.0648, "best_step": 1080}
    sweep.done("over", {0: 3.0644}, **over)
    sweep.done("old", {0: 3.0644}, outcome="degraded")
    said = "final losses clearly above the best on the way: 'over' seed 0 3.0644 (best 2.0648 at "
    table = table_of(sweep.plan())
    assert f"Warning: {said}step 1,080)." in warnings(table)
    assert "of the weights after the last step" in legend(table)
