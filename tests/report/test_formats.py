"""What programs and papers get: JSON that retraces every number, LaTeX that compiles."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path

import pytest
from synthetic_runs import SweepFactory, failed
from synthetic_studies import StudyFactory

from lm_experiments.report import build_table, collect, write_report
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.latex import escape, latex

DOCUMENT = (
    r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table}\end{document}"
)


def test_json_retraces_every_number(study: StudyFactory) -> None:
    study.tuned = True
    root = study.whole()
    table = build_table(collect(root))
    content = json.loads(json_text(table))
    assert content["study"] == json.loads((root / "sweep.json").read_text())["study"]
    assert content["command"] == "python scripts/train.py -m study=norms"
    assert [arm["arm"] for arm in content["arms"]] == [row.arm for row in table.rows]
    nope = next(arm for arm in content["arms"] if arm["arm"] == "nope")
    assert (nope["overrides"], nope["verdict"]) == (["position=none"], "edge of the grid")
    assert nope["chosen"] == {"value": 0.01, "edge": "high", "failed": 0}
    runs = nope["main"]["runs"]
    assert [run["seed"] for run in runs] == [0, 1, 2, 3, 4]
    assert sum(run["val_loss"] for run in runs) / 5 == nope["main"]["statistics"]["mean"]
    assert all((root / run["directory"]).is_dir() and run["config_hash"] for run in runs)
    assert runs[0]["setting"] == {"optimizer.lr": 0.01}
    assert len(nope["common"]["runs"]) == 5
    assert len(nope["trials"]) == 3
    statistics = next(c for c in content["contrasts"] if c["arm"] == "nope")["statistics"]
    assert statistics["low"] < statistics["mean"] < statistics["high"]
    assert content["rule"]["contrasts"] == 4
    assert content["provenance"]["commit"] == ["a" * 40]


def test_json_holds_no_number_that_json_lacks(study: StudyFactory) -> None:
    study.broken["nope", 0] = {"outcome": "non-finite", "val_loss": math.nan}
    text = json_text(build_table(collect(study.whole())))
    assert "NaN" not in text
    runs = next(a for a in json.loads(text)["arms"] if a["arm"] == "nope")["main"]["runs"]
    assert runs[0]["val_loss"] == "nan"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50 % of a_b & c#1 $x {y}", r"50 \% of a\_b \& c\#1 \$x \{y\}"),
        ("0.01^", r"0.01\textasciicircum{}"),
        (r"C:\x ~ <0.001", r"C:\textbackslash{}x \textasciitilde{} \textless{}0.001"),
        ("[-0.01, +0.02]", "[$-$0.01, $+$0.02]"),
        ("gpt-2 1e-3 lr=-1", "gpt-2 1e-3 lr=$-$1"),
    ],
)
def test_latex_escapes(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_latex_has_a_row_for_each_arm_and_equal_cells(study: StudyFactory) -> None:
    text = latex(build_table(collect(study.whole())))
    body = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0].splitlines()
    assert len(body) == 5
    assert len({line.count(" & ") for line in body}) == 1
    assert "\\label{tab:norms}" in text
    assert "equivalent" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(sweep: SweepFactory) -> None:
    for arm in ("a_1 & 2", "[b] 50%", "c\\d ^ {e} ~ #$"):
        sweep.done(arm, {seed: 3.0 + len(arm) / 100 + seed / 1000 for seed in range(3)})
    sweep.run("f", result=failed("f", 0, "Value_Error", 'a "b" <c> | {d} \\e' * 9))
    root = sweep.plan()
    write_report(root)
    (root / "document.tex").write_text(DOCUMENT)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert Path(root / "document.pdf").stat().st_size > 0
