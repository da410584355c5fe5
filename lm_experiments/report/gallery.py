"""A gallery of published claims held against runs: one card a claim, made from studies' tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.report.exhibits import (
    Exhibit,
    read_folders,
    read_gallery,
    reproductions,
    with_retrained,
    write_origin,
)
from lm_experiments.report.statistics.published import VERDICTS, Finding
from lm_experiments.report.table.markdown import markdown_row, plain_text
from lm_experiments.report.table.published import RULE, amount, claim_text, figure_text
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.words import counted

INDEX = "index.md"
SUMMARY = ("claim", "published", "here", "verdict at this scale", "study")
COLUMNS = ("", "model", "training tokens", "runs", "difference", "read in")
# What a picture shows, by the end of its name: NAME.png, NAME.ladder.png, ...
PICTURES = {
    "": "Differences with 95 % intervals; empty bars are published ranges",
    ".ladder": "Differences against training compute, with 95 % intervals",
    ".sensitivity": "Validation loss by the tuned key",
    ".contexts": "Loss by context length, and by position",
}


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
    """Write a page with a card for every claim of these sweeps, their tables and pictures.

    Studies that the gallery in `out` holds stay in it, but for those whose table was removed; one
    of the same name is replaced. Cards of claims that do not hold come first. A claim that several
    sweeps declare, at several budgets, has one card. Raises `InputError` for what `read_folders`
    and `read_gallery` refuse.
    """
    new = read_folders(folders)
    names = [exhibit.name for exhibit, _ in new]
    held = [*read_gallery(out, without=names), *(exhibit for exhibit, _ in new)]
    records = reproductions(folders)
    exhibits = [with_retrained(each, records) for each in sorted(held, key=lambda each: each.name)]
    if not exhibits:
        raise InputError(f"{out} holds no studies yet; give the folder of one, runs/NAME.")
    out.mkdir(parents=True, exist_ok=True)
    tables = [_copied(folder, name, out) for folder, name in zip(folders, names, strict=True)]
    for exhibit, table in new:
        _draw(table, exhibit.name, out)
    pictures = {each.name: _pictures(each.name, out) for each in exhibits}
    origins = {each.name: write_origin(out, each) for each in exhibits}
    page = out / INDEX
    write_atomically(page, _page(_cards(exhibits), pictures))
    drawn = [path for name in names for path in pictures[name]]
    return [page, *tables, *(origins[name] for name in names), *drawn]


def _draw(table: Table, name: str, out: Path) -> None:
    """Draw what there is to draw; what an earlier table of that name left goes."""
    # Imported here because matplotlib is slow to load.
    from lm_experiments.report.pictures.contexts import draw_contexts
    from lm_experiments.report.pictures.forest import draw_forest
    from lm_experiments.report.pictures.ladder import draw_ladder
    from lm_experiments.report.pictures.sensitivity import draw_sensitivity

    draws = (draw_forest, draw_ladder, draw_sensitivity, draw_contexts)
    for kind, draw in zip(PICTURES, draws, strict=True):
        path = out / f"{name}{kind}.png"
        path.unlink(missing_ok=True)
        draw(table, path)


def _pictures(name: str, out: Path) -> dict[Path, str]:
    """The pictures of a study that are there, with what they show."""
    paths = {out / f"{name}{kind}.png": text for kind, text in PICTURES.items()}
    return {path: text for path, text in paths.items() if path.is_file()}


def _copied(folder: Path, name: str, out: Path) -> Path:
    """Keep the table of a sweep beside the page, byte for byte."""
    path = out / f"{name}.json"
    write_atomically(path, (folder / "table.json").read_bytes())
    return path


def _cards(exhibits: Sequence[Exhibit]) -> list[Card]:
    """One for each claim, those that do not hold first."""
    held: dict[tuple[str, str], list[tuple[Finding, Exhibit]]] = {}
    for exhibit in sorted(exhibits, key=lambda each: -each.tokens):
        for found in exhibit.findings:
            claim = exhibit.as_declared(found.claim)
            held.setdefault((claim.claim, claim.rule), []).append((found, exhibit))
    cards = [Card(tuple(each)) for each in held.values()]
    return sorted(cards, key=lambda card: VERDICTS.index(card.found.verdict))


def _page(cards: Sequence[Card], pictures: Mapping[str, Mapping[Path, str]]) -> str:
    verdicts = [card.found.verdict for card in cards]
    counts = ", ".join(f"{verdict} {verdicts.count(verdict)}" for verdict in VERDICTS)
    lines = [
        "# Published claims, held against small runs",
        "",
        f"{counted(len(cards), 'claim')} ({counts}). {RULE}",
        "",
        "This page is made by `python scripts/gallery.py` from run directories alone. A claim held",
        "against several budgets has the verdict of that with the most training tokens.",
        "",
        *_table(SUMMARY, [_summary(number, card) for number, card in enumerate(cards, 1)]),
    ]
    for number, card in enumerate(cards, 1):
        lines += ["", *_card(number, card)]
    if drawn := {name: paths for name, paths in pictures.items() if paths}:
        lines += ["", "## All differences"]
    for name, paths in drawn.items():
        lines += ["", f"### {name}"]
        for path, text in paths.items():
            lines += ["", f"![{text}]({path.name})"]
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
    here = [_here(found, exhibit) for found, exhibit in card.held]
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
    return [
        f"{exhibit.setting} {exhibit.origin.cost}",
        "",
        "```bash",
        exhibit.command,
        "```",
        "",
        f"[Its table]({exhibit.name}.json) has the SHA-256 `{exhibit.origin.table}`. "
        f"{_retrained(exhibit)}",
    ]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [*map(markdown_row, (titles, [":---"] * len(titles), *rows))]


def _source(source: Source, claim: Claim) -> list[str]:
    tokens = "not noted" if source.tokens is None else amount(source.tokens)
    runs = "not stated" if source.runs is None else str(source.runs)
    figure = figure_text(source, claim) or "-"
    return [source.source, source.model or "not noted", tokens, runs, figure, source.read]


def _here(found: Finding, exhibit: Exhibit) -> list[str]:
    """The row of these runs."""
    parameters, tokens, runs = exhibit.scale(found.claim.arms[0])
    size = f"{amount(parameters)} parameters"
    origin = f"its runs: {found.verdict}"
    return ["**here**", size, amount(tokens), str(runs), found.here or "-", origin]


def _retrained(exhibit: Exhibit) -> str:
    last = exhibit.origin.retrained
    if last is None:
        return "No cell of it has been trained again yet."
    return f"Last cell trained again: {last.cell}, {last.verdict}, on {last.time[:10]}."
