"""The sections on other contexts, texts and tasks: losses, and differences with intervals."""

from __future__ import annotations

from lm_experiments.report.statistics.elsewhere import Cell, Elsewhere
from lm_experiments.report.table.columns import NOTHING, bounds_text, fixed
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.report.table.section import Section
from lm_experiments.rundir.evaluations import CONTEXT, DATA, TASK, Asked
from lm_experiments.rundir.measures import UNITS
from lm_experiments.rundir.words import counted

LOSSES, DIFFERENCES = "Elsewhere", "Differences elsewhere"
AGREEMENT = "signs as in the table"


def elsewhere_sections(table: Table) -> list[Section]:
    """The sections; none where the study asks for nothing."""
    found = table.elsewhere
    if found is None:
        return []
    losses = Section(
        LOSSES,
        ("arm", *(title_of(each, found) for each in found.asked), *_split_titles(found)),
        tuple(_losses(row, found) for row in table.rows),
        tuple(_loss_notes(table, found)),
        figure="contexts",
    )
    compared = [row for row in table.rows if row.arm in found.references]
    if not compared:
        return [losses]
    texts = any(each.kind == DATA for each in found.asked)
    titles = ("arm", "against", *(title_of(each, found) for each in found.asked))
    differences = Section(
        DIFFERENCES,
        (*titles, AGREEMENT) if texts else titles,
        tuple(_differences(row, found, texts) for row in compared),
        (_difference_note(texts),),
    )
    return [losses, differences]


def title_of(asked: Asked, found: Elsewhere) -> str:
    """Its title, of a context with its tokens where these are the same for all arms."""
    trained = set(found.trained.values())
    if asked.kind != CONTEXT or len(trained) != 1:
        return asked.title
    return f"{asked.title} ({asked.tokens(trained.pop())})"


def longest(found: Elsewhere) -> Asked | None:
    """The longest context, where it is beyond the trained one."""
    contexts = found.contexts
    return contexts[-1] if contexts and contexts[-1].multiple > 1 else None


def _split_titles(found: Elsewhere) -> tuple[str, ...]:
    asked = longest(found)
    return (f"{asked.title}: 2nd trained half", f"{asked.title}: beyond") if asked else ()


def _losses(row: Row, found: Elsewhere) -> tuple[str, ...]:
    cells = found.cells[row.arm]
    means = [_loss_text(cells[each.title]) for each in found.asked]
    asked = longest(found)
    split = (cells[asked.title].within, cells[asked.title].beyond) if asked else ()
    return (row.arm, *means, *(fixed(part.mean if part else None, ".4f") for part in split))


def _loss_text(cell: Cell) -> str:
    return fixed(cell.loss.mean, ".4f") if cell.loss else cell.refused or NOTHING


def _differences(row: Row, found: Elsewhere, texts: bool) -> tuple[str, ...]:
    cells = found.cells[row.arm]
    shown = [_difference_text(cells[each.title]) for each in found.asked]
    agreed = found.agreement(row.arm, row.difference)
    agreement = "{} of {}".format(*agreed) if agreed else NOTHING
    return (row.arm, found.references[row.arm], *shown, *([agreement] if texts else []))


def _difference_text(cell: Cell) -> str:
    if (item := cell.difference) is None:
        return cell.refused or NOTHING
    interval = "" if item.low is None or item.high is None else bounds_text(item.low, item.high)
    return f"{fixed(item.mean, '+.4f')} {interval}".rstrip()


def _loss_notes(table: Table, found: Elsewhere) -> list[str]:
    kinds = {each.kind for each in found.asked}
    unit = UNITS["bits_per_byte" if found.in_bits else "val_loss"]
    lines = [
        f"The last weights of each run, in {unit}, the mean over an "
        "arm's usable runs, in windows that do not overlap."
    ]
    if CONTEXT in kinds:
        lines.append(
            "A context is a multiple of the trained one, over the same text as the table; with a "
            'longer one fewer tokens are near the beginning of a window. "trained to" marks '
            "positions that cannot go further."
        )
    if longest(found):
        lines.append(
            "Of the longest context, two parts are given (nats per token): targets in the second "
            "half of the positions that were trained, and those beyond. Both have much text before "
            "them, so a loss beyond that is not higher is extrapolation; the rest of a gain is of "
            "fewer targets near the beginning."
        )
    if TASK in kinds:
        lines.append("Tasks have a score of lm-eval, of which more is better.")
    if found.missing:
        lines.append(
            f"{counted(found.missing, 'measure')} missing; type python scripts/evaluate.py "
            f"{table.sweep.directory}."
        )
    return lines


def _difference_note(texts: bool) -> str:
    agreement = f" {AGREEMENT}: on how many of the other texts the difference has that sign."
    return (
        "Paired over seeds, with 95 % intervals, each for itself: these are secondary outcomes, "
        f"without p and verdicts.{agreement if texts else ''}"
    )
