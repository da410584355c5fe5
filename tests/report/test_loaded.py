"""A loaded sweep: what its objects show, what is a look, and what there is not."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from synthetic_runs import SweepFactory, grid, history, result_of
from synthetic_studies import StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import build_table, load
from lm_experiments.report.pictures.curves import draw_curves
from lm_experiments.report.pictures.forest import draw_forest
from lm_experiments.report.style import AXES, STEPS, TOKENS
from lm_experiments.report.table.markdown import markdown
from lm_experiments.rundir.ledger import LOOK, Look, read_ledger

LOSSES = {0: 3.0, 1: 3.1, 2: 3.05}


class Cells(HTMLParser):
    """The tags of a text, and what its cells hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self.texts += [""] * (tag in ("td", "th"))

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data


def looks(folder: Path) -> list[Look]:
    return [entry.look for entry in read_ledger(folder) if entry.event == LOOK]


def pixels(content: bytes) -> np.ndarray:
    return imread(io.BytesIO(content), format="png")


def two_arms(sweep: SweepFactory, other: str = "relu") -> Path:
    sweep.done("base", LOSSES)
    sweep.done(other, {seed: loss + 0.1 + 0.01 * seed for seed, loss in LOSSES.items()})
    return sweep.plan()


def test_a_table_is_its_rows_and_its_markdown(sweep: SweepFactory) -> None:
    table = load(two_arms(sweep)).table()
    assert [row["arm"] for row in table.rows] == ["base", "relu"]
    assert table.rows[1]["vs baseline"] == "+0.1100"
    assert str(table) == repr(table) == markdown(table.table)
    chosen = load(sweep.root).table("tokens/s", "val loss")
    assert list(chosen.rows[0]) == ["arm", "tokens/s", "val loss"]
    assert "| arm | tokens/s | val loss |" in str(chosen)


def test_a_notebook_shows_names_as_text(sweep: SweepFactory) -> None:
    hostile = '<script>alert("x")</script>'
    table = load(two_arms(sweep, hostile)).table()
    found = Cells(table._repr_html_())
    assert found.tags == {"p", "table", "tr", "th", "td", "ul", "li"}
    titles = list(table.rows[0])
    assert [text.strip() for text in found.texts[: len(titles)]] == titles
    assert hostile in found.texts


def test_pictures_are_those_of_the_files_whatever_the_reader_has_set(sweep: SweepFactory) -> None:
    grid(sweep, 2)
    loaded = load(sweep.plan("placement", "ffn", "position"))
    table = build_table(loaded.sweep)
    draw_forest(table, sweep.root / "forest.png")
    draw_curves(table, sweep.root / "curves.png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.dpi": 40}):
        found = {"forest": loaded.forest(), "curves": loaded.curves()}
        shown = {name: figure._repr_png_() for name, figure in found.items()}
    for name, content in shown.items():
        written = (sweep.root / f"{name}.png").read_bytes()
        assert np.array_equal(pixels(content), pixels(written)), name
    load(sweep.root).effects()
    assert len(looks(sweep.root)) == 2


def test_curves_are_drawn_against_what_is_asked_for(sweep: SweepFactory) -> None:
    sweep.run("a", result=result_of("a", 0, 3.0, tokens=5e6), metrics=history(3.0, 0))
    loaded = load(sweep.plan())
    labels = [loaded.curves(axis).axes[0].get_xlabel() for axis in (None, "tokens")]
    assert [label.split(",")[0] for label in labels] == [AXES[STEPS], AXES[TOKENS]]
    with pytest.raises(InputError, match="and whose flops are known"):
        loaded.curves("flops")
    with pytest.raises(InputError, match="hours is not known; it can be steps, tokens"):
        loaded.curves("hours")


def test_a_tuned_study_has_its_sensitivity(study: StudyFactory) -> None:
    study.tuned = True
    assert isinstance(load(study.whole()).sensitivity(), Figure)


@pytest.mark.parametrize("name", ["forest", "effects", "curves", "by_value", "sensitivity"])
def test_nothing_to_draw_is_a_sentence_and_no_look(sweep: SweepFactory, name: str) -> None:
    sweep.done("base", {0: 3.0})
    folder = sweep.plan()
    with pytest.raises(InputError, match=r"^grid: nothing to draw; .* needs? .*\.$"):
        getattr(load(folder), name)()
    assert not looks(folder)


def test_what_compares_arms_is_one_look_of_each_load(sweep: SweepFactory) -> None:
    folder = two_arms(sweep)
    loaded = load(folder)
    loaded.frame()
    with pytest.raises(InputError, match="'speed' is no column"):
        loaded.table("speed")
    assert not looks(folder)
    loaded.forest()
    assert looks(folder) == [Look(6, 6, True, "base")]
    loaded.table()
    assert len(looks(folder)) == 1
    load(folder, baseline="relu").table()
    assert looks(folder)[1:] == [Look(6, 6, True, "relu")]


def test_several_folders_are_one_sweep_and_each_ledger_keeps_the_look(tmp_path: Path) -> None:
    first, second = SweepFactory(tmp_path / "a"), SweepFactory(tmp_path / "b")
    first.done("base", LOSSES)
    second.done("post", LOSSES)
    loaded = load(first.plan(), second.plan())
    assert [row["arm"] for row in loaded.table().rows] == ["base", "post"]
    assert sorted(loaded.frame().arm.unique()) == ["base", "post"]
    assert len(looks(first.root)) == len(looks(second.root)) == 1
    assert repr(loaded) == "LoadedSweep(a + b: 2 arms, 6 of 6 runs finished)"
