"""One table of several sweeps: which runs and arms are one, what is refused, what is claimed."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import SweepFactory, result_of
from synthetic_studies import KNOWN, StudyFactory

from lm_experiments.cli import table as command
from lm_experiments.errors import InputError
from lm_experiments.report import merged_report
from lm_experiments.report.table.notes import headline, notes
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.ledger import LOOK, read_ledger
from lm_experiments.rundir.study import REPORT
from lm_experiments.study.reproduce import draw_cells

LOSSES = {0: 3.0, 1: 3.1, 2: 3.05}
Sweeps = Callable[[str], SweepFactory]


@pytest.fixture
def sweeps(tmp_path: Path) -> Sweeps:
    """Sweeps by name, empty at first."""
    return cache(lambda name: SweepFactory(tmp_path / name))


def configured(sweep: SweepFactory, arm: str, *changes: str, **values: Any) -> None:
    """Give the runs of an arm the values that determine them, and the keys that it changes."""
    for at, row in enumerate(sweep.planned):
        if row.arm == arm:
            sweep.planned[at] = dataclasses.replace(row, changes=list(changes))
            identity = Identity("h", "d", {"seed": row.seed, **values})
            write_identity(sweep.root / row.directory, identity)


def merged(*sweeps: SweepFactory, **options: Any) -> Table:
    return merged_report([sweep.plan() for sweep in sweeps], **options).table


def cells(table: Table) -> dict[str, list[int]]:
    """The seeds of each arm of a table."""
    return {row.arm: sorted(run.seed for run in row.runs) for row in table.rows}


def test_arms_and_seeds_of_all_sweeps_are_there_and_each_run_once(sweeps: Sweeps) -> None:
    sweeps("a").done("base", LOSSES)
    sweeps("a").done("relu", {seed: loss + 0.1 for seed, loss in LOSSES.items()})
    sweeps("b").done("base", {**LOSSES, 3: 3.02})
    sweeps("b").done("post", {seed: loss + 0.2 for seed, loss in LOSSES.items()})
    table = merged(sweeps("a"), sweeps("b"))
    assert cells(table) == {"base": [0, 1, 2, 3], "relu": [0, 1, 2], "post": [0, 1, 2]}
    assert headline(table) == "3 arms, 10 of 10 runs finished (10 ok)."
    assert table.baseline == "base"
    assert table.sweep.record.name == "a + b"
    assert {row.arm: row.comparison and row.comparison.verdict for row in table.rows} == {
        "base": None,
        "relu": "exploratory",
        "post": "exploratory",
    }
    [told] = [note for note in notes(table) if note.startswith("Exploratory: ")]
    assert "a and " in told
    assert "were declared each by itself, and not together" in told
    # A look at the results of both.
    for name in ("a", "b"):
        assert [e.look.tested for e in read_ledger(sweeps(name).root) if e.event == LOOK] == [True]
        assert not (sweeps(name).root / "table.md").exists()


def test_a_sweep_that_only_others_may_write_is_merged_without_a_trace(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        sweeps(name).done(name, LOSSES)
        sweeps(name).plan()
    access = os.access
    locked = sweeps("b").root
    monkeypatch.setattr(os, "access", lambda path, mode: path != locked and access(path, mode))
    merged_report([sweeps("a").root, locked])
    looks = [[e.event for e in read_ledger(sweeps(n).root)].count(LOOK) for n in ("a", "b")]
    assert looks == [1, 0]


def test_of_a_run_in_two_folders_the_finished_one_counts(sweeps: Sweeps) -> None:
    sweeps("a").run("base", 0)
    sweeps("a").done("relu", {0: 3.0})
    sweeps("b").done("base", {0: 3.0})
    sweeps("b").run("relu", 0)
    runs = merged(sweeps("a"), sweeps("b")).sweep.runs
    assert [(run.arm, run.status, run.directory.parent.name) for run in runs] == [
        ("base", "done", "b"),
        ("relu", "done", "a"),
    ]


def test_what_is_configured_alike_is_one_arm_whatever_it_is_called(sweeps: Sweeps) -> None:
    sweeps("a").done("base", {0: 3.0})
    sweeps("b").done("swiglu", {1: 3.1})
    configured(sweeps("a"), "base", norm="rmsnorm")
    configured(sweeps("b"), "swiglu", norm="rmsnorm")
    assert cells(merged(sweeps("a"), sweeps("b"))) == {"base": [0, 1]}


def test_arms_of_one_name_and_two_configurations_are_told_apart(sweeps: Sweeps) -> None:
    for name, norm in (("a", "layernorm"), ("b", "none")):
        sweeps(name).done("base", {0: 3.0})
        configured(sweeps(name), "base", norm="rmsnorm")
        sweeps(name).run("mine", 0, result=result_of("mine", 0, 3.5), overrides=[f"norm={norm}"])
        configured(sweeps(name), "mine", "norm", norm=norm)
    # Each has a hash of its own.
    planned = sweeps("b").planned
    planned[-1] = dataclasses.replace(planned[-1], config_hash="other")
    found = cells(merged(sweeps("a"), sweeps("b")))
    assert found == {"base": [0], "mine": [0], f"mine ({sweeps('b').root})": [0]}


def test_sweeps_with_other_settings_or_other_code_are_refused(sweeps: Sweeps) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        sweeps(name).done(name, {0: 3.0})
        configured(sweeps(name), name, rate=rate)
    with pytest.raises(InputError, match=r"differ in rate \(0\.1 in .*a-s0.*0\.2 in .*b-s0"):
        merged(sweeps("a"), sweeps("b"))
    assert merged(sweeps("a"), sweeps("b"), allow_mixed=True).mixed
    sweeps("c").done("c", {0: 3.0}, commit="b" * 40)
    with pytest.raises(InputError, match=r"The runs of 'a \+ c' .*differ in code"):
        merged(sweeps("a"), sweeps("c"))


def test_controls_are_left_out_and_tuned_sweeps_are_refused(
    sweeps: Sweeps, study: StudyFactory
) -> None:
    study.arms["again"] = []
    study.controls = ("again",)
    folder = study.whole()
    sweeps("a").done("mine", LOSSES, **KNOWN)
    table = merged_report([sweeps("a").plan(), folder]).table
    assert set(cells(table)) == {"mine", *study.arms} - {"again"}
    study.tuned = True
    with pytest.raises(InputError, match=r"norms tunes optimizer\.lr for each arm.*leave it out"):
        merged_report([sweeps("a").root, study.plan()])


def test_nothing_is_tested_before_all_sweeps_are_finished(sweeps: Sweeps) -> None:
    sweeps("a").done("base", LOSSES)
    sweeps("b").done("relu", {0: 3.5, 1: 3.3})
    sweeps("b").run("relu", 2)
    table = merged(sweeps("a"), sweeps("b"))
    assert not table.sweep.complete
    assert not table.tested
    assert headline(table).startswith("UNFINISHED: 5 of 6 runs finished")


def test_what_a_study_still_plans_is_missing_from_the_merged_table(
    sweeps: Sweeps, study: StudyFactory
) -> None:
    sweeps("a").done("mine", LOSSES, **KNOWN)
    for arm in study.arms:
        study.add(arm, 0, REPORT)
    table = merged_report([sweeps("a").plan(), study.plan()]).table
    assert not table.sweep.complete
    assert headline(table).startswith("UNFINISHED: 8 of 28 runs finished")


def test_a_table_that_is_written_leads_to_its_runs(sweeps: Sweeps, tmp_path: Path) -> None:
    sweeps("a").done("base", {0: 3.0})
    sweeps("b").done("relu", {0: 3.5})
    out = tmp_path / "deep" / "both"
    report = merged_report([sweeps("a").plan(), sweeps("b").plan()], out)
    assert {path.parent for path in report.files} == {out}
    arms = json.loads((out / "table.json").read_text())["arms"]
    named = [run["directory"] for arm in arms for run in arm["main"]["runs"]]
    assert [(out / name).resolve().parent for name in named] == [sweeps("a").root, sweeps("b").root]
    assert [cell.directory.resolve().parent for cell in draw_cells(out / "table.json", 2, 0)] == [
        sweeps("a").root,
        sweeps("b").root,
    ]
    with pytest.raises(InputError, match="is a sweep's folder"):
        merged_report([sweeps("a").root, sweeps("b").root], sweeps("a").root)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{a}", "{a}"], "is named twice"),
        (["{a}", "{b}", "--check"], "b is not understood; --check takes one sweep's folder"),
        (["{a}", "--out", "x"], "--out x is for several sweeps"),
        (["{a}", "{b}x"], "There is no folder"),
        (["{a}", "{b}", "--baseline", "x"], "No arm is called 'x'"),
    ],
)
def test_what_makes_no_merged_table_is_refused_in_one_sentence(
    sweeps: Sweeps, capsys: pytest.CaptureFixture[str], words: Sequence[str], told: str
) -> None:
    folders = {}
    for name in ("a", "b"):
        sweeps(name).done(name, {0: 3.0})
        folders[name] = sweeps(name).plan()
    assert command.main([word.format(**folders) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_the_command_prints_and_writes_only_where_it_is_told(
    sweeps: Sweeps, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("a", "b"):
        sweeps(name).done(name, {0: 3.0})
    folders = [str(sweeps(name).plan()) for name in ("a", "b")]
    before = set(tmp_path.rglob("table*"))
    assert command.main(folders) == 0
    assert "Nothing was written; type --out FOLDER" in capsys.readouterr().out
    assert set(tmp_path.rglob("table*")) == before
    assert command.main([*folders, "--out", str(tmp_path / "both")]) == 0
    assert f"Wrote {tmp_path / 'both' / 'table.md'}" in capsys.readouterr().out
