"""report.html: the numbers of the table, every name as text, and no look while a sweep goes on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import SweepFactory, failed, grid, history, result_of, write_run
from synthetic_studies import StudyFactory

from lm_experiments.cli.report import main
from lm_experiments.report import build_table, collect, write_report
from lm_experiments.report.page import PAGE, page_html, sort_value
from lm_experiments.report.page.figures import DASHES, MARKS, looks, thinned
from lm_experiments.report.page.interim import EVERY_SECONDS, InterimPage
from lm_experiments.report.table.columns import interval_text, p_text
from lm_experiments.rundir import ledger
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.ledger import LOOK, read_ledger
from lm_experiments.rundir.metrics import write_rows
from lm_experiments.rundir.names import DIAGNOSTICS, LOG, SAMPLES
from lm_experiments.rundir.sweeps import SweepRow

HOSTILE = "</script><script>alert('<b>&\u2028\"}{{ 'q' * 9 }}')</script>"


@dataclass
class Page(HTMLParser):
    """What a browser finds in a page: texts by element, attributes, and the data of the script."""

    html: str
    texts: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    data: Any = None

    def __post_init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open[-1:] in (["script"], ["style"]):
            if self.tags[-1][1].get("id") == "data":
                self.data = json.loads(data)
            return
        self.texts.append(" ".join(data.split()))
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)

    @property
    def text(self) -> str:
        """All that is read."""
        return " ".join(" ".join(self.texts).split())

    def table(self, first: str) -> list[dict[str, str]]:
        """The rows under the heading whose first column has this title."""
        start = next(i for i, row in enumerate(self.rows) if row[:1] == [first])
        titles, found = self.rows[start], []
        for row in self.rows[start + 1 :]:
            if len(row) != len(titles):
                break
            found.append(dict(zip(titles, row, strict=True)))
        return found


@pytest.fixture(autouse=True)
def no_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five megabytes that say nothing here."""
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "")


def page_of(root: Path, interim: str = "") -> Page:
    return Page(page_html(build_table(collect(root)), interim))


def test_its_numbers_are_those_of_table_json(study: StudyFactory) -> None:
    study.curves = study.tuned = True
    root = study.whole()
    write_report(root)
    table = json.loads((root / "table.json").read_text())
    page = Page((root / PAGE).read_text("utf-8"))
    shown = {row["arm"]: row for row in page.table("arm")}
    assert shown.keys() == {arm["arm"] for arm in table["arms"]}
    for arm in table["arms"]:
        cells = shown[arm["arm"]]
        assert cells["val loss at own best"] == f"{arm['main']['statistics']['mean']:.4f}"
        if found := arm["main"]["contrasts"]:
            said = found[0]["statistics"]
            assert cells["vs baseline"] == f"{said['mean']:+.4f}"
            assert cells["95 % interval"] == f"[{said['low']:+.4f}, {said['high']:+.4f}]"
            assert cells["verdict"] == found[0]["verdict"]
    drawn = {
        (row["label"], row["mean"], row["low"], row["high"], row["word"])
        for row in page.data["figures"]["forest"]["rows"]
    }
    assert drawn == {
        (
            c["arm"],
            c["statistics"]["mean"],
            c["statistics"]["low"],
            c["statistics"]["high"],
            c["verdict"],
        )
        for c in table["contrasts"]
    }


def test_it_answers_in_order(sweep: SweepFactory) -> None:
    grid(sweep, 3)
    page = page_of(sweep.plan("placement", "ffn", "position"))
    assert [heading.split()[0] for heading in page.headings] == [
        "Which",
        "How",
        "How",
        "What",
        "Why",
        "Can",
        "Can",
    ]
    table = build_table(collect(sweep.root))
    best = table.rows[0]
    assert best.loss and best.difference
    assert f"{best.arm} has the lowest val loss, {best.loss.mean:.4f} nats per token." in page.text
    p = p_text(best.difference.adjusted_p)
    assert f"95 % interval {interval_text(best.difference)}, p {p}, n = 3." in page.text
    effects = {row["effect"]: row["difference"] for row in page.table("effect")}
    assert table.effects is not None
    assert effects["ffn swiglu"] == f"{table.effects.main[1].mean:+.4f}"
    assert [r["mean"] for r in page.data["figures"]["effects"]["rows"]] == [
        effect.mean for effect in table.effects.effects
    ]


def test_an_arm_is_told_from_others_that_no_test_compared_it_with(sweep: SweepFactory) -> None:
    for arm, loss in {"base": 3.3, "best": 3.1, "good": 3.12}.items():
        sweep.done(arm, {seed: loss + 0.001 * seed * len(arm) for seed in range(5)})
    text = page_of(sweep.plan()).text
    assert "best has the lowest val loss, 3.1080 nats per token. It is better than base." in text
    assert "Whether it is also better than good was not tested." in text


def test_nobody_wins_where_no_arm_is_better(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.1, 1: 3.11, 2: 3.12})
    sweep.done("new", {0: 3.2, 1: 3.22, 2: 3.21})
    text = page_of(sweep.plan()).text
    assert "base, the baseline, has the lowest val loss, 3.1100 nats per token." in text
    assert "No arm is shown to be better than its reference." in text


def test_every_name_and_text_is_only_text(sweep: SweepFactory) -> None:
    run = sweep.run("base", 0, result=result_of("base", 0, 3.1), metrics=history(3.1, 0))
    write_rows(run / SAMPLES, [{"step": 5, "prompt": HOSTILE, "text": f"text {HOSTILE}"}])
    broken = sweep.root / "hostile"
    sweep.planned.append(SweepRow(HOSTILE, 0, broken.name, "h" * 64))
    error = failed(HOSTILE, 0, "ValueError", f"error {HOSTILE}")
    write_run(broken, HOSTILE, 0, error, history(3.2, 0))
    (broken / LOG).write_text(f"log {HOSTILE}\n")
    page = page_of(sweep.plan())
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert len(scripts) == 3, "a text has become a script"
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]
    assert not [tag for tag, _ in page.tags if tag == "b"]
    assert HOSTILE in page.data["looks"]
    assert [arm["arm"] for arm in page.data["figures"]["curves"]["arms"]] == ["base", HOSTILE]
    words = " ".join(HOSTILE.split())
    for told in (words, f"error {words}", f"log {words}", f"text {words}"):
        assert told in page.text
    assert "qqqqqqqqq" not in page.html, "a text was taken for a template"


def test_why_and_failures(sweep: SweepFactory) -> None:
    base = sweep.run("base", 0, result=result_of("base", 0, 3.1, seconds=90.0, train_flops=10**15))
    new = sweep.run("new", 0, result=failed("new", 0, "RuntimeError", "mat1 and mat2"))
    values = {"seed": 0, "model.norm.name": "rmsnorm", "model.d_model": 64, "model.norm.eps": 1e-5}
    write_identity(base, Identity("c", "d", values))
    write_identity(
        new, Identity("c", "d", {"seed": 1, "model.norm.name": "none", "model.d_model": 64})
    )
    (new / LOG).write_text("".join(f"line {i}\n" for i in range(1000)))
    write_rows(
        new / SAMPLES, [{"step": s, "prompt": "In the", "text": f"word {s}"} for s in (5, 10)]
    )
    page = page_of(sweep.plan())
    changed = [text for text in page.texts if text.startswith("model.")]
    assert changed == ["model.norm.name"]
    assert "rmsnorm none" in page.text
    assert "new, seed 0: FAILED" in page.text and "RuntimeError: mat1 and mat2" in page.text
    assert "line 999" in page.text and "line 900 " not in page.text
    assert "word 10" in page.text and "word 5" not in page.text
    assert "1 run took 1 min 30 s of training and 1P FLOPs" in page.text
    costs = {row["arm"]: row for row in page.table("arm")[-2:]}
    assert costs.keys() == {"base", "new"}


def test_layers_are_those_of_the_last_look(sweep: SweepFactory) -> None:
    for seed, last in ((0, 0.2), (1, 0.4)):
        run = sweep.run("base", seed, result=result_of("base", seed, 3.1))
        rows = [{"step": 5, "gradient_norm/0": 9.0}, {"step": 10, "gradient_norm/0": last}]
        write_rows(run / DIAGNOSTICS, rows)
    sweep.done("new", {0: 3.2})
    layers = page_of(sweep.plan()).data["figures"]["layers"]
    assert list(layers["statistics"]) == ["gradient_norm"]
    [arm] = layers["arms"]
    assert arm["lines"]["gradient_norm"] == {"x": ["0"], "y": [pytest.approx(0.3)]}


def test_trust_and_repetition(study: StudyFactory) -> None:
    root = study.whole()
    write_report(root)
    page = page_of(root)
    ledger = page.table("time (UTC)")
    assert [row["event"] for row in ledger] == ["command", "declared", "look"]
    assert ledger[2]["what"] == "a table of 25 of 25 runs against baseline, with p-values"
    assert f"python scripts/train.py -m study=norms runs_dir={root.parent}" in page.text
    assert {row["question"] for row in page.table("answer")} >= {"the same code"}
    assert "a" * 40 in page.text and "d" * 64 in page.text


def test_every_event_of_the_ledger_is_told(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.1})
    root = sweep.plan()
    ledger.append(root, ledger.HALVED, {"base-s1000-12345678": "37", "base-s1001-12345678": "37"})
    write_report(root)
    told = {row["event"]: row["what"] for row in page_of(root).table("time (UTC)")}
    assert told["halved"] == "2 trials ended by halving"


def test_a_page_of_a_sweep_that_goes_on_compares_nothing(sweep: SweepFactory) -> None:
    for arm in ("base", "new"):
        for seed in range(3):
            loss = 3.1 + 0.1 * (arm == "new") + 0.01 * seed
            sweep.run(arm, seed, result=result_of(arm, seed, loss), metrics=history(loss, seed))
    page = page_of(sweep.plan(), "2026-01-01 10:00:00 UTC")
    assert page.data["figures"].keys() == {"curves", "layers"}
    assert "Which arm won?" not in page.headings
    assert "verdict" not in page.text and "vs baseline" not in page.text
    assert "this page is of 2026-01-01 10:00:00 UTC" in page.text


def test_it_is_written_again_once_a_minute_and_is_no_look(
    sweep: SweepFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.done("base", {0: 3.1})
    sweep.run("new", exists=False)
    root = sweep.plan()
    now = [0.0]
    monkeypatch.setattr("lm_experiments.report.page.interim.time.monotonic", lambda: now[0])
    interim, page = InterimPage(), root / PAGE
    interim.refresh(root)
    assert not page.exists()
    for second, written in ((EVERY_SECONDS, True), (EVERY_SECONDS + 59, False)):
        page.unlink(missing_ok=True)
        now[0] = second
        interim.refresh(root)
        assert page.exists() is written
    now[0] += EVERY_SECONDS
    interim.refresh(root)
    assert re.search(r"page is of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC and", page.read_text("utf-8"))
    assert LOOK not in [entry.event for entry in read_ledger(root)]


def test_a_page_that_fails_does_not_end_the_sweep(
    sweep: SweepFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.done("base", {0: 3.1})
    directory = sweep.run("new", result=result_of("new", 0, 3.0))
    (directory / "result.json").write_text("{")
    root = sweep.plan()
    interim = InterimPage()
    monkeypatch.setattr(interim, "_due", 0.0)
    interim.refresh(root)
    assert not (root / PAGE).exists()


def test_28_arms_differ_without_colour(sweep: SweepFactory) -> None:
    for i in range(len(DASHES) * len(MARKS)):
        sweep.done(f"arm {i}", {0: 3.0 + i})
    found = looks(build_table(collect(sweep.plan()))).values()
    assert len({(look["dash"], look["mark"]) for look in found}) == len(found) == 28


def test_thinning_keeps_the_ends_and_every_spike() -> None:
    values = [0.001 * (i % 7) for i in range(2000)]
    values[777], values[1333] = 9.0, -9.0
    kept = thinned(values, 100)
    assert len(kept) <= 102 and kept == sorted(set(kept))
    assert {0, 777, 1333, 1999} <= set(kept)
    assert thinned(values[:100], 100) == list(range(100))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("639,840", "639840"),
        ("3.83M", "3.83e+06"),
        ("+0.0120", "0.012"),
        ("<0.001", "0.001"),
        ("[-0.0031, +0.0042]", "-0.0031"),
        ("3 of 5", "3"),
        ("1e-05", "1e-05"),
        ("2.5e+03", "2500"),
        ("-", "-"),
        ("(baseline)", "(baseline)"),
        ("unresolved", "unresolved"),
    ],
)
def test_cells_are_sorted_by_their_number(text: str, value: str) -> None:
    assert sort_value(text) == value


def test_the_command(
    sweep: SweepFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.done("base", {0: 3.1})
    root = sweep.plan()
    assert main([str(root)]) == 0
    out = capsys.readouterr().out
    assert "base, the baseline, has the lowest val loss" in out
    assert f"Wrote {root / PAGE} (" in out
    other = SweepFactory(tmp_path / "other")
    other.done("more", {0: 3.2})
    both = [str(root), str(other.plan())]
    assert main(both) == 2
    assert capsys.readouterr().err == (
        "error: The page of several sweeps needs a folder; type --out FOLDER.\n"
    )
    assert main([*both, "--out", str(tmp_path / "both")]) == 0
    assert "more" in (tmp_path / "both" / PAGE).read_text("utf-8")
