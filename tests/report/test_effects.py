"""The section of a grid: its effects in every format, in words, and in a picture."""

from __future__ import annotations

import io
import json
from itertools import product
from pathlib import Path

import pytest
from figure_contents import marked, outside, words
from matplotlib.figure import Figure
from rich.console import Console
from synthetic_runs import SweepFactory, result_of
from synthetic_studies import StudyFactory

from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.pictures.effects import draw_effects
from lm_experiments.report.statistics.factorial import Effect
from lm_experiments.report.table.effects import (
    HEADING,
    effect_cells,
    effect_label,
    effect_notes,
    shown_effects,
)
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.latex import latex
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.terminal import show_table

# Post-norm costs .016 with SwiGLU and .062 with SiLU.
EFFECTS = {("pre", "silu"): 0.03, ("pre", "swiglu"): 0.0}
EFFECTS |= {("post", "silu"): 0.092, ("post", "swiglu"): 0.016}
SHARED = (0.01, -0.02, 0.005, 0.0)


def two_by_two(sweep: SweepFactory, seeds: int = 3, noise: float = 0.0005, **changes: str) -> Table:
    """A table of placement x ffn, the first cell the baseline, with little noise."""
    for (placement, ffn), effect in EFFECTS.items():
        arm = f"{placement} {ffn}"
        overrides = [f"placement={placement}", f"ffn={ffn}", "size=tiny"]
        for seed in range(seeds):
            own = noise * ((seed * 7 + len(arm) * 3 + placement.count("o") * seed**2) % 5 - 2)
            loss = 3.2 + effect + SHARED[seed] + own
            change = changes if (arm, seed) == ("post swiglu", 2) else {}
            sweep.run(arm, seed, result=result_of(arm, seed, loss, **change), overrides=overrides)
    return build_table(collect(sweep.plan("placement", "ffn", "size")))


def effects_of(table: Table) -> dict[str, Effect]:
    assert table.effects is not None
    return {effect_label(effect): effect for effect in table.effects.effects}


def many_levels(sweep: SweepFactory) -> Table:
    """A grid of 5 x 6 with one interaction of .3 and no other."""
    for i, j in product(range(5), range(6)):
        arm = f"{i} {j}"
        for seed in range(3):
            noise = 0.001 * ((7 * i + 11 * j + 5 * seed + i * j * seed) % 13 - 6)
            loss = 3 + 0.1 * i + 0.3 * ((i, j) == (4, 5)) + noise
            overrides = (f"a={i}", f"b={j}")
            sweep.run(arm, seed, result=result_of(arm, seed, loss), overrides=overrides)
    return build_table(collect(sweep.plan("a", "b")))


def test_effects_are_against_the_levels_of_the_baseline(sweep: SweepFactory) -> None:
    table = two_by_two(sweep)
    found = effects_of(table)
    assert {name: effect.mean for name, effect in found.items()} == {
        "placement post": pytest.approx(0.039, abs=0.002),
        "ffn swiglu": pytest.approx(-0.053, abs=0.002),
        "placement post x ffn swiglu": pytest.approx(-0.046, abs=0.003),
    }
    other = effects_of(build_table(table.sweep, "post swiglu"))
    assert other["placement pre"].mean == pytest.approx(-found["placement post"].mean)
    assert "Exploratory" in effect_notes(build_table(table.sweep, "post swiglu"))[0]


def test_a_sentence_says_whether_the_effect_depends_on_the_others(sweep: SweepFactory) -> None:
    table = two_by_two(sweep)
    post = next(line for line in effect_notes(table) if line.startswith("placement post against"))
    assert post.startswith("placement post against pre: +0.0")
    assert "on average; it depends on the others: with ffn=silu +0.06" in post
    assert "with ffn=swiglu +0.01" in post
    assert ", interaction placement post x ffn swiglu -0.04" in post
    at = table.effects.by_level(effects_of(table)["placement post"], "ffn") if table.effects else {}
    losses = {row.arm: row.loss.mean for row in table.rows if row.loss}
    for ffn, step in at.items():
        assert step == pytest.approx(losses[f"post {ffn}"] - losses[f"pre {ffn}"])


def test_noise_that_hides_an_interaction_is_said(sweep: SweepFactory) -> None:
    table = two_by_two(sweep, noise=0.03)
    lines = [line for line in effect_notes(table) if " on average; " in line]
    assert len(lines) == 2
    assert all("no dependence on the others is resolved (nearest: with " in line for line in lines)


def test_every_format_has_the_section(sweep: SweepFactory) -> None:
    table = two_by_two(sweep)
    out = io.StringIO()
    show_table(table, Console(file=out, width=100, force_terminal=True, color_system=None))
    assert max(map(len, out.getvalue().splitlines())) <= 100
    cells = effect_cells(effects_of(table)["placement post x ffn swiglu"])
    paper = latex(table).replace(r"\textless{}", "<").translate(dict.fromkeys(map(ord, "${}")))
    for text in (markdown(table).replace("&lt;", "<"), out.getvalue(), paper):
        assert all(cell in text for cell in cells)
    assert f"## {HEADING}" in markdown(table)
    content = json.loads(json_text(table))["effects"]
    assert [e["levels"] for e in content["effects"]] == [["post"], ["swiglu"], ["post", "swiglu"]]
    assert content["factors"] == {"placement": ["pre", "post"], "ffn": ["silu", "swiglu"]}
    assert (content["seeds"], content["notes"]) == ([0, 1, 2], effect_notes(table))


def test_large_grids_show_what_is_resolved_and_json_has_all(sweep: SweepFactory) -> None:
    table = many_levels(sweep)
    assert table.effects and len(table.effects.effects) == 4 + 5 + 20
    shown = [effect_label(effect) for effect in shown_effects(table.effects)]
    assert shown[:9] == [*(f"a {i}" for i in range(1, 5)), *(f"b {j}" for j in range(1, 6))]
    assert "a 4 x b 5" in shown[9:]
    lines = effect_notes(table)
    assert f"Left out: {29 - len(shown)} interactions with p of 0.05 or more" in lines[-1]
    assert any(line.startswith("a 4 against 0") and "it depends" in line for line in lines)
    assert any("show no dependence on other keys" in line for line in lines)
    assert len(json.loads(json_text(table))["effects"]["effects"]) == 29
    assert "booktabs" in latex(table) and "a 4 x b 5" not in latex(table)


def test_a_failing_arm_leaves_no_effects_and_is_named(sweep: SweepFactory) -> None:
    table = two_by_two(sweep, outcome="diverged")
    assert table.effects is None
    [line] = effect_notes(table)
    assert "not defined where runs fail: post swiglu." in line
    assert line in markdown(table)


@pytest.mark.parametrize("case", ["one seed", "unfinished", "no grid", "one factor"])
def test_without_a_complete_grid_there_is_no_section(sweep: SweepFactory, case: str) -> None:
    if case == "one factor":
        for lr in ("1e-3", "3e-3"):
            for seed in (0, 1):
                loss = result_of(lr, seed, 3.0 + seed)
                sweep.run(lr, seed, result=loss, overrides=[f"optimizer.lr={lr}"])
        table = build_table(collect(sweep.plan("optimizer.lr")))
    else:
        table = two_by_two(sweep, seeds=1 if case == "one seed" else 2)
    if case in ("unfinished", "no grid"):
        name = "pre silu" if case == "unfinished" else "pre relu"
        given = [f"placement={name.split()[0]}", f"ffn={name.split()[1]}", "size=tiny"]
        for seed in (0, 1) if case == "no grid" else (2,):
            done = result_of(name, seed, 3.0 + seed) if case == "no grid" else None
            sweep.run(name, seed, exists=done is not None, result=done, overrides=given)
        table = build_table(collect(sweep.plan("placement", "ffn", "size")))
    assert table.effects is None
    assert HEADING not in markdown(table)
    assert json.loads(json_text(table))["effects"] == {"notes": []}


def test_a_declared_study_of_a_grid_has_effects_too(study: StudyFactory) -> None:
    study.arms = {
        f"{norm} {ffn}": [f"norm={norm}", f"ffn={ffn}"]
        for norm, ffn in product(("rmsnorm", "layernorm"), ("silu", "swiglu"))
    }
    study.arms = {"baseline": study.arms.pop("rmsnorm silu"), **study.arms}
    table = build_table(collect(study.whole()))
    assert {"norm layernorm", "ffn swiglu", "norm layernorm x ffn swiglu"} == set(effects_of(table))
    assert "noise of tuning" not in effect_notes(table)[0]
    study.tuned, study.root, study.entries = True, study.root.with_name("tuned"), []
    tuned = build_table(collect(study.whole()))
    assert effect_notes(tuned)[0].endswith("3 effects, without the noise of tuning.")


def test_the_picture_has_a_row_for_each_effect(
    sweep: SweepFactory, figures: list[Figure], tmp_path: Path
) -> None:
    table = two_by_two(sweep)
    assert draw_effects(table, tmp_path / "effects.png")
    [figure] = figures
    [axes] = figure.axes
    found = list(effects_of(table).values())
    assert marked(axes, "o") == [(effect.mean, at) for at, effect in enumerate(found[:2])]
    assert marked(axes, "D") == [(found[2].mean, 2)]
    assert "placement post x ffn swiglu" in words(figure)
    assert outside(figure) == []
