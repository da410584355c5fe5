"""The LaTeX table as it is asked for: columns, digits, names, and letters that pdflatex lacks."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_runs import SweepFactory, result_of

from lm_experiments.errors import InputError
from lm_experiments.report import Style, build_table, collect
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.latex import escape, latex
from lm_experiments.rundir.metrics import write_rows


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("α-RoPE ≥ 2×", r"$\alpha$-RoPE $\ge$ 2$\times$"),  # noqa: RUF001
        ("Ωμ Λ", r"$\Omega$$\mu$ $\Lambda$"),
        ("größe é", "größe é"),
        ("中", "U+4E2D"),
        ("ﬁx²", "fix2"),
    ],
)
def test_letters_that_pdflatex_lacks_are_spelled_out(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def styled(sweep: SweepFactory, **changes: Any) -> str:
    for arm, loss in (("a_1", 3.00004), ("b", 2.5)):
        sweep.done(arm, {seed: loss + seed / 1e6 for seed in range(3)})
    return latex(build_table(collect(sweep.plan())), Style(**changes))


def test_the_best_loss_is_bold_with_the_digits_asked_for(sweep: SweepFactory) -> None:
    text = styled(sweep, digits=2)
    assert "b & \\textbf{2.50} & 0.00 & 3 of 3 & $-$0.50" in text
    assert "a\\_1 & 3.00 &" in text and text.count("\\textbf") == 1


def test_columns_caption_label_and_names_are_those_asked_for(sweep: SweepFactory) -> None:
    asked = {"columns": ("vs baseline", "sd"), "caption": r"Ours, $\alpha$.", "label": "tab:x"}
    text = styled(sweep, **asked, notes=False, arm_labels={"a_1": r"\textsc{ours}"})
    assert r"\caption{Ours, $\alpha$.}" in text and r"\label{tab:x}" in text
    assert r"\textsc{ours} & (baseline) & 0.0000" in text
    assert "\\parbox" not in text
    assert text.partition("\\toprule")[2].splitlines()[2].count("&") == 2


def test_notes_do_not_tell_of_columns_that_are_not_there(sweep: SweepFactory) -> None:
    text = styled(sweep, columns=("val loss",))
    assert "over seeds (ddof 1)" not in text and "half-width" not in text
    assert "FLOPs/token" not in text
    assert "Differences are paired over the seeds" in text


def test_what_is_no_column_or_arm_is_refused(sweep: SweepFactory) -> None:
    with pytest.raises(InputError, match="'speed' is no column; there are val loss, "):
        styled(sweep, columns=("speed",))
    with pytest.raises(InputError, match="'c' is no arm; there are b, a_1"):
        latex(build_table(collect(sweep.plan())), Style(arm_labels={"c": "C"}))
    with pytest.raises(InputError, match="--digits 9 must be 1 to 8"):
        Style(digits=9)


def test_diagnostics_are_columns(sweep: SweepFactory) -> None:
    for arm, norms in (("a", (1.0, 2.0)), ("b", (4.0, 3.0))):
        for seed in range(2):
            run = sweep.run(arm, seed, result=result_of(arm, seed, 3.0))
            rows = [{"step": 1, "stream_rms/0": 9.0}]
            last = {f"stream_rms/{i}": norm + 2 * seed for i, norm in enumerate(norms)}
            write_rows(run / "diagnostics.jsonl", [*rows, {"step": 2, "log_z": 5.0, **last}])
    table = build_table(collect(sweep.plan()))
    titles = ["diagnostics/stream_rms", "diagnostics/stream_rms/1", "diagnostics/log_z"]
    _, *chosen = columns(table, titles=titles)
    assert [[c.text(row) for c in chosen] for row in table.rows] == [
        ["3", "3", "5"],
        ["5", "4", "5"],
    ]
