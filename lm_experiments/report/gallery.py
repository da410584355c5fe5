"""A gallery of published claims held against runs: one card a claim, made from run directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Run, collect
from lm_experiments.report.statistics.published import VERDICTS, Finding
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.markdown import markdown_row, plain_text
from lm_experiments.report.table.published import RULE, amount, claim_text, figure_text
from lm_experiments.report.table.rows import Table, build_table
from lm_experiments.report.table.saved import table_hash
from lm_experiments.rundir.names import REPRODUCED
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.reproduced import read_reproduction
from lm_experiments.rundir.words import counted, duration

INDEX = "index.md"
SUMMARY = ("claim", "published", "here", "verdict at this scale", "study")
COLUMNS = ("", "model", "training tokens", "runs", "difference", "read in")
PICTURE = "Differences with 95 % intervals; empty bars are published ranges"


@dataclass(frozen=True)
class Exhibit:
    """A sweep with published claims, and the hash of its table's file."""

    folder: Path
    table: Table
    digest: str

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.table.sweep.record.name

    @property
    def tokens(self) -> float:
        """The training tokens of its longest arm."""
        return max((row.first("tokens") or 0.0 for row in self.table.rows), default=0.0)


@dataclass(frozen=True)
class Card:
    """A claim, and what each study of it found, that with the most training tokens first."""

    held: tuple[tuple[Finding, Exhibit], ...]

    @property
    def found(self) -> Finding:
        """What the study with the most tokens found."""
        return self.held[0][0]

    @property
    def claim(self) -> Claim:
        """The claim, as that study declares it."""
        return self.found.claim

    @property
    def verdict(self) -> str:
        """Its verdict, with the reason where it is not testable."""
        found = self.found
        return (
            f"{found.verdict}: {found.reason}" if found.reason else f"{found.verdict} at this scale"
        )


def write_gallery(folders: Sequence[Path], out: Path) -> list[Path]:
    """Write a page with a card for every claim of these sweeps, their tables and forest plots.

    Cards of claims that do not hold come first. A claim that several sweeps declare, at several
    budgets, has one card. Raises `InputError` for a sweep without claims, without a table, whose
    table is not that of its runs, and for two sweeps of one name.
    """
    # Imported here because matplotlib is slow to load.
    from lm_experiments.report.pictures.forest import draw_forest

    exhibits = [_exhibit(folder) for folder in folders]
    names = [exhibit.name for exhibit in exhibits]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"Two sweeps are called {repeated[0]}; rename one of their folders.")
    out.mkdir(parents=True, exist_ok=True)
    drawn = [path for each in exhibits if draw_forest(each.table, path := out / f"{each.name}.png")]
    tables = [_copied(each, out) for each in exhibits]
    page = out / INDEX
    page.write_text(_page(_cards(exhibits), drawn), encoding="utf-8", newline="\n")
    return [page, *tables, *drawn]


def _copied(exhibit: Exhibit, out: Path) -> Path:
    """Keep the table of a sweep beside the page, byte for byte."""
    path = out / f"{exhibit.name}.json"
    path.write_bytes((exhibit.folder / "table.json").read_bytes())
    return path


def _exhibit(folder: Path) -> Exhibit:
    table, path = build_table(collect(folder)), folder / "table.json"
    if not table.published:
        raise InputError(
            f"{folder} holds no published claims; a study has them under published:, see "
            "docs/studies.md."
        )
    if not path.is_file() or path.read_text(encoding="utf-8") != json_text(table):
        raise InputError(
            f"{path} is missing, or is not the table of the runs beside it; make it: python "
            f"scripts/table.py {folder}"
        )
    return Exhibit(folder, table, table_hash(path))


def _cards(exhibits: Sequence[Exhibit]) -> list[Card]:
    """One for each claim, those that do not hold first."""
    held: dict[tuple[str, str], list[tuple[Finding, Exhibit]]] = {}
    for exhibit in sorted(exhibits, key=lambda each: -each.tokens):
        for found in exhibit.table.published:
            claim = _as_declared(found.claim, exhibit)
            held.setdefault((claim.claim, claim.rule), []).append((found, exhibit))
    cards = [Card(tuple(each)) for each in held.values()]
    return sorted(cards, key=lambda card: VERDICTS.index(card.found.verdict))


def _as_declared(claim: Claim, exhibit: Exhibit) -> Claim:
    """A claim by the arms' own labels, where a ladder holds it against its largest rung."""
    study = exhibit.table.sweep.study
    rungs = study.ladder.rungs if study and study.ladder else []
    return claim.called({label: arm for rung in rungs[-1:] for arm, label in rung.arms.items()})


def _page(cards: Sequence[Card], pictures: Sequence[Path]) -> str:
    verdicts = [card.found.verdict for card in cards]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS)
    lines = [
        "# Published claims, held against small runs",
        "",
        f"{counted(len(cards), 'claim')}: {counts}. {RULE}",
        "",
        "This page is made by `python scripts/gallery.py` from run directories alone. A claim held",
        "against several budgets has the verdict of that with the most training tokens.",
        "",
        *_table(SUMMARY, [_summary(number, card) for number, card in enumerate(cards, 1)]),
    ]
    for number, card in enumerate(cards, 1):
        lines += ["", *_card(number, card)]
    if pictures:
        lines += ["", "## All differences"]
    for picture in pictures:
        lines += ["", f"### {picture.stem}", "", f"![{PICTURE}]({picture.name})"]
    return "\n".join(lines) + "\n"


def _summary(number: int, card: Card) -> list[str]:
    claim, found = card.claim, card.found
    studies = ", ".join(exhibit.name for _, exhibit in card.held)
    return [
        f"{number}. {claim.claim}",
        claim.published,
        found.here or "-",
        found.verdict,
        studies,
    ]


def _card(number: int, card: Card) -> list[str]:
    claim = card.claim
    here = [_here(found, exhibit.table) for found, exhibit in card.held]
    lines = [
        f"## {number}. {plain_text(claim.claim)}",
        "",
        f"**{plain_text(card.verdict)}** ({plain_text(claim_text(claim))})",
        "",
        *_table(COLUMNS, [*(_source(each, claim) for each in claim.sources), *here]),
        "",
        *([f"Why it may differ: {plain_text(claim.why)}", ""] if claim.why else []),
    ]
    for at, (_, exhibit) in enumerate(card.held):
        lines += [""] if at else []
        lines += _origin(exhibit)
    return lines


def _origin(exhibit: Exhibit) -> list[str]:
    """How a study was trained, what it cost, and how to train it again."""
    table = exhibit.table
    return [
        f"{_setting(table)} {_cost(table)}",
        "",
        "```bash",
        table.sweep.record.command,
        "```",
        "",
        f"[Its table]({exhibit.name}.json) has the SHA-256 `{exhibit.digest}`. "
        f"{_retrained(exhibit)}",
    ]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [*map(markdown_row, (titles, [":---"] * len(titles), *rows))]


def _source(source: Source, claim: Claim) -> list[str]:
    tokens = "not noted" if source.tokens is None else amount(source.tokens)
    runs = "not stated" if source.runs is None else str(source.runs)
    figure = figure_text(source, claim) or "-"
    return [source.source, source.model or "not noted", tokens, runs, figure, source.read]


def _here(found: Finding, table: Table) -> list[str]:
    """The row of these runs."""
    row = next((row for row in table.rows if row.arm == found.claim.arms[0]), None)
    size, tokens = (amount(row.first(name) if row else None) for name in ("parameters", "tokens"))
    runs = str(len(row.runs)) if row else "0"
    origin = f"its runs: {found.verdict}"
    return ["**here**", f"{size} parameters", tokens, runs, found.here or "-", origin]


def _setting(table: Table) -> str:
    if table.tune is not None:
        return f"Each arm at its own best {table.tune.key}, searched alike for all."
    rates = sorted({rate for row in table.rows if (rate := row.first("learning_rate"))})
    return f"Not tuned: learning rate {' and '.join(f'{rate:g}' for rate in rates)}."


def _cost(table: Table) -> str:
    """What all runs of the sweep took, trials too."""
    runs = {run.directory: run for run in (*table.sweep.runs, *table.sweep.trials)}.values()
    took = [seconds for run in runs if (seconds := _processor_seconds(run)) is not None]
    if not took:
        return f"{counted(len(runs), 'run')}, whose time is not known."
    device = "CPU" if all(run.result.device == "cpu" for run in runs) else "device"
    return f"{counted(len(runs), 'run')} took {duration(sum(took))} of {device} time."


def _processor_seconds(run: Run) -> float | None:
    """Of all its processes: CPU time on CPUs, else the time its devices were held."""
    result = run.result
    one = result.cpu_seconds if result.device == "cpu" else result.wall_seconds
    return None if one is None else one * (result.world_size or 1)


def _retrained(exhibit: Exhibit) -> str:
    """The cell of this very table that was trained again last."""
    folders = [path.parent for path in exhibit.folder.resolve().parent.glob(f"*/{REPRODUCED}")]
    found = [record for folder in folders if (record := read_reproduction(folder)).cells]
    mine = [record for record in found if record.table == exhibit.digest]
    if not mine:
        return "No cell of it has been trained again yet."
    last = max(mine, key=lambda record: record.time)
    cell = last.cells[-1]
    return f"Last cell trained again: {cell.cell}, {cell.verdict}, on {last.time[:10]}."
