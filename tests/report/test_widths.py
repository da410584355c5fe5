"""Narrow terminals: no number and no verdict is cut, and every name can be told from the others."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from synthetic_runs import SweepFactory, result_of
from synthetic_studies import StudyFactory

from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.table import terminal
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.fit import (
    ANYWHERE,
    AT_SPACES,
    IMPORTANT,
    SHORTENED,
    Cells,
    Fitted,
    fitted,
)
from lm_experiments.rundir.words import shortened

WIDTHS = (60, 80, 100, 120)
LONG = "model.attention_pattern=[local,local,local,global] model.position_pattern=[rope,none] "
NAMES = [f"{LONG}model.norm.eps=1e-{i}" for i in range(5)]


def lines(view: Fitted, width: int) -> list[str]:
    """A fitted table as a terminal shows it."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(view.table, markup=False, highlight=False, emoji=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def shown(view: Fitted, width: int) -> dict[str, list[str]]:
    """The cells of each column as they stand on the screen, by title: the lines of each joined.

    Rows are told apart by the last column, whose cells are numbers on one line.
    """
    offsets, at = [], 0
    for column in view.table.columns:
        offsets.append((at, at + int(column.width or 0)))
        at += int(column.width or 0) + 2
    printed = lines(view, width)
    start = next(i for i, line in enumerate(printed) if set(line.strip()) == {"─"}) + 1
    rows: list[list[str]] = []
    for line in printed[start:]:
        parts = [line[a:b].strip() for a, b in offsets]
        if parts[-1]:
            rows.append(parts)
        else:
            rows[-1] = [f"{old}\n{new}".strip() for old, new in zip(rows[-1], parts, strict=True)]
    titles = [str(column.header) for column in view.table.columns]
    return {title: [row[i] for row in rows] for i, title in enumerate(titles)}


def every_column() -> list[Cells]:
    """Columns of each kind: long names, intervals, verdicts, and numbers of increasing rank."""
    count = len(NAMES)
    numbers = [Cells(f"cost {i}", [f"{i},234,567"] * count, True, rank=i) for i in range(1, 9)]
    return [
        Cells("arm", NAMES, breaks=ANYWHERE),
        Cells("val loss", ["3.9297"] * count, True),
        Cells("n", ["10 of 10"] * count, True, rank=IMPORTANT),
        Cells("95 % interval", ["[+0.0024, +0.0217]"] * count, True, AT_SPACES, IMPORTANT + 1),
        *numbers,
        Cells("verdict", ["fails 3 of 10", *["equivalent"] * (count - 1)], breaks=AT_SPACES),
        Cells("difference", [f"+0.012{i}" for i in range(count)], True),
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_cell_is_cut_and_names_are_whole(width: int) -> None:
    given = every_column()
    view = fitted(given, width)
    assert view.fits
    assert max(map(len, lines(view, width))) <= width
    assert "…" not in "\n".join(lines(view, width))
    found = shown(view, width)
    assert [*found] == [c.title for c in given if c.title not in view.dropped]
    for column in given:
        if column.title in found:
            gap = {ANYWHERE: "", AT_SPACES: " "}.get(column.breaks, "\n")
            texts = [text.replace("\n", gap).replace(" ", "") for text in found[column.title]]
            assert texts == [text.replace(" ", "") for text in column.texts], column.title


@pytest.mark.parametrize("width", WIDTHS)
def test_words_are_kept_whole_where_a_cell_goes_on_in_the_next_line(width: int) -> None:
    found = shown(fitted(every_column(), width), width)
    for text in [*found["verdict"], *found.get("95 % interval", [])]:
        assert set(text.split()) <= {
            *("fails", "3", "of", "10"),
            *("equivalent", "[+0.0024,", "+0.0217]"),
        }


def test_a_number_stays_on_one_line_however_long() -> None:
    cells = [
        Cells("arm", NAMES, breaks=ANYWHERE),
        Cells("tokens", ["1,234,567,890,123,456,789"] * 5),
    ]
    for width in (42, 50, 60):
        assert "\n".join(lines(fitted(cells, width), width)).count(cells[1].texts[0]) == 5


def test_what_is_least_important_goes_first_and_is_named() -> None:
    dropped = [fitted(every_column(), width).dropped for width in WIDTHS]
    assert dropped[0][:8] == tuple(f"cost {i}" for i in range(1, 9))
    assert dropped[2] == tuple(f"cost {i}" for i in range(1, len(dropped[2]) + 1))
    assert len(dropped[0]) > len(dropped[1]) >= len(dropped[2]) > len(dropped[3]) > 0
    assert "n" not in dropped[1]
    assert fitted(every_column(), 400).dropped == ()


@pytest.mark.parametrize("width", [12, 16, 24, 60])
def test_shortened_names_fit_and_differ(width: int) -> None:
    for names in (NAMES, [*NAMES, "short", NAMES[0]], [f"{'x' * 50}{i}{'y' * 50}" for i in "ab"]):
        short = shortened(names, width)
        assert max(map(len, short)) <= width
        assert len(set(short)) == len(set(names))
        assert [name for name in short if len(name) < width and name not in names] == []


def test_a_shortened_column_is_told_apart_in_the_table() -> None:
    cells = [Cells("run", NAMES, breaks=SHORTENED), Cells("loss", ["3.9297"] * 5, True)]
    found = shown(fitted(cells, 30), 30)["run"]
    assert len(set(found)) == 5
    assert all(name.startswith("model.attention") for name in found)


def table_text(table: Table, width: int) -> str:
    """The whole report of a table as a terminal shows it."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    terminal.show_table(table, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def renamed(study: StudyFactory) -> None:
    """Give the arms names as long as settings make them."""
    study.arms = {"baseline": [], **{name: [f"x={i}"] for i, name in enumerate(NAMES)}}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tuned", [False, True])
def test_the_table_of_a_study_keeps_losses_differences_and_verdicts(
    study: StudyFactory, width: int, tuned: bool
) -> None:
    renamed(study)
    study.tuned = tuned
    table = build_table(collect(study.whole()))
    text = table_text(table, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    by_title = {column.title: column for column in columns(table)}
    loss = next(title for title in by_title if title.startswith("val loss"))
    for title in (loss, "vs baseline", "verdict"):
        for row in table.rows:
            cell = by_title[title].text(row)
            assert all(word in text for word in cell.split()), (title, cell)


@pytest.mark.parametrize("width", WIDTHS)
def test_swept_keys_share_a_column_where_they_do_not_fit_beside_each_other(
    sweep: SweepFactory, width: int
) -> None:
    keys = [f"model.some_section.long_key_{i}" for i in range(4)]
    for value in "ab":
        overrides = [f"{key}={value * 12}" for key in keys]
        sweep.run(" ".join(overrides), result=result_of("", 0, 3.25), overrides=overrides)
    table = build_table(collect(sweep.plan(*keys)))
    assert len(table.axes) == 4
    text = table_text(table, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count("3.2500") == 2


def test_a_pipe_gets_names_whole(study: StudyFactory) -> None:
    renamed(study)
    console = Console(file=io.StringIO(), force_terminal=False)
    terminal.show_table(build_table(collect(study.whole())), console)
    assert isinstance(console.file, io.StringIO)
    assert all(name in console.file.getvalue() for name in NAMES)
