"""Pictures of a model before training: what is drawn, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.commands import SMALL, completed
from matplotlib.figure import Figure

from lm_experiments.cli import inspect_init
from lm_experiments.rundir.diagnostics import GRADIENT
from lm_experiments.study.initial_look import LOGITS, look_at


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    saved: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: saved.append(figure))
    return saved


@pytest.fixture
def inspect(
    command: Callable[..., Any], text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    defaults = [*SMALL, f"data.path={text_file}"]
    return lambda *words: command("inspect_init", *completed(words, defaults))


def test_arms_are_drawn_side_by_side(
    inspect: Callable[..., Any], figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Any] = []
    arms = inspect_init._arms
    monkeypatch.setattr(inspect_init, "_arms", lambda w: runs.extend(arms(w)) or list(runs))
    answer = inspect("placement=pre,post", "model.n_layers=3", "--out", "pictures")
    assert (answer.code, answer.out) == (0, "Wrote pictures/layers.png\n"), answer.text
    [figure] = figures
    gradients = figure.axes[0].lines
    assert [line.get_label() for line in gradients] == ["pre", "post"]
    for run, line in zip(runs, gradients, strict=True):
        row = look_at(run).row
        assert list(line.get_ydata()) == [row[f"{GRADIENT}/{block}"] for block in range(3)]
    assert not Path("runs").exists()


def test_widths_are_checked_after_each_step(
    inspect: Callable[..., Any], figures: list[Figure]
) -> None:
    words = ["init=mup", "model.init.base_width=16", "model.d_model=16,32", "--steps", "2"]
    answer = inspect(*words, "match=none")
    assert answer.code == 0, answer.text
    assert answer.out == "Wrote layers.png\nWrote coordinates.png\n"
    panels = figures[1].axes
    assert [len(axes.lines) for axes in panels] == [3, 3, 3]
    assert [list(line.get_xdata()) for line in panels[0].lines] == [[16, 32]] * 3
    labels = [line.get_label() for line in panels[0].lines]
    assert labels == ["at initialisation", "after 1 step", "after 2 steps"]


def test_steps_change_what_is_seen(
    inspect: Callable[..., Any], figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    arms = inspect_init._arms
    monkeypatch.setattr(inspect_init, "_arms", lambda words: seen.extend(arms(words)) or seen)
    assert inspect("seed=1").code == 0
    look = look_at(seen[0], steps=2)
    assert len({look.row[LOGITS], *(row[LOGITS] for row in look.later)}) == 3


def test_what_cannot_be_drawn_is_refused(refused: Callable[..., str]) -> None:
    assert "--steps -1 must be 0 or more" in refused("inspect_init", "--steps", "-1")
    many = ",".join(map(str, range(40)))
    assert "40 arms are more than the 28" in refused(
        "inspect_init", "optimizer.beta1=0.5", f"seed={many}"
    )
