"""A table for a paper: LaTeX with booktabs rules, with its notes below."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lm_experiments.errors import InputError
from lm_experiments.report.style import USUAL, Style
from lm_experiments.report.table.column import Column
from lm_experiments.report.table.columns import columns, decimals
from lm_experiments.report.table.latex_text import escape
from lm_experiments.report.table.notes import headline, legend, notes
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.report.table.section import Section
from lm_experiments.report.table.sections import sections
from lm_experiments.rundir.measures import MEASURE_TITLES

LONGEST_TITLE = 8
# Longer names of arms go on in a second line.
LONGEST_NAME, NAME_MARK = 26, "p{4cm}"
# Narrow enough that the error of a failed run does not push the table off the page.
OUTCOME_MARK = "p{2.4cm}"
FIT = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
# A section of more columns is scaled down where it is wider than the line.
MOST_UNSCALED = 4
# What the notes say of a column, which is left out where the table has no such column.
_OF_COLUMNS = {
    "sd": "sd is over seeds (ddof 1). ",
    "95 % +/-": "+/- is the half-width of the 95 % t interval of the mean. ",
    "plain p (Holm)": "; plain p beside",
    "FLOPs/token": " FLOPs/token is for training.",
}


def latex(table: Table, style: Style = USUAL) -> str:
    r"""A `table` environment to `\input`; the document needs `\usepackage{booktabs}`.

    With graphicx a table wider than the line is scaled down to it. Raises `InputError` for a label
    of an arm that the table lacks, and for an unknown column.
    """
    _check_arms(table, style)
    with decimals(style.digits):
        return _environment(table, style)


def _environment(table: Table, style: Style) -> str:
    known = columns(table, by_axis=not style.arm_labels, titles=style.columns)
    chosen = [column for column in known if column.printed]
    marks = [_mark(column, table) for column in chosen]
    label = re.sub(r"[^A-Za-z0-9]+", "-", table.sweep.record.name).strip("-")
    lines = [
        "% Needs \\usepackage{booktabs}; with graphicx a table that is too wide is scaled down.",
        "\\providecommand{\\resizebox}[3]{#3}",
        "\\begin{table}[tbp]",
        "\\centering",
        "\\scriptsize",
        "\\setlength{\\tabcolsep}{2pt}",
        f"\\caption{{{_caption(table, style, chosen)}}}",
        f"\\label{{{style.label or f'tab:{label}'}}}",
        FIT,
        f"\\begin{{tabular}}{{@{{}}{''.join(marks)}@{{}}}}",
        "\\toprule",
        *_titles(chosen),
        "\\midrule",
        *(_line(row, chosen, marks, style, best=row is _best(table)) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}}",
        *(_notes(table, style, chosen) if style.notes else []),
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _check_arms(table: Table, style: Style) -> None:
    arms = [row.arm for row in table.rows]
    for arm in style.arm_labels:
        if arm not in arms:
            raise InputError(f"--arm-label {arm!r} is no arm; there are {', '.join(arms)}.")


def _caption(table: Table, style: Style, chosen: Sequence[Column]) -> str:
    if style.caption is not None:
        return style.caption
    return escape(f"{table.sweep.record.name}: {headline(table)} {_about(legend(table), chosen)}")


def _notes(table: Table, style: Style, chosen: Sequence[Column]) -> list[str]:
    own = [] if style.caption is None else [headline(table), legend(table)]
    text = _about(" ".join([*own, *notes(table)]), chosen)
    return [
        "\\par\\medskip",
        f"\\parbox{{\\linewidth}}{{\\raggedright {escape(text)}}}",
        *(line for section in sections(table) for line in _section(section)),
    ]


def _about(text: str, chosen: Sequence[Column]) -> str:
    """The text without what it says of columns that are not there."""
    titles = {column.title for column in chosen}
    for title, phrase in _OF_COLUMNS.items():
        if title not in titles:
            text = text.replace(phrase, "")
    return text


def _mark(column: Column, table: Table) -> str:
    if column.title == "outcome":
        return OUTCOME_MARK
    if column.title == "arm" and max(len(row.arm) for row in table.rows) > LONGEST_NAME:
        return NAME_MARK
    return "r" if column.right else "l"


def _section(section: Section) -> list[str]:
    """A section that goes on paper, below the notes."""
    if not section.printed:
        return []
    rows = [[f"{{{escape(cell)}}}" for cell in row] for row in section.rows]
    wide = len(section.titles) > MOST_UNSCALED
    return [
        "\\par\\medskip",
        *([FIT] if wide else []),
        f"\\begin{{tabular}}{{@{{}}l{'r' * (len(section.titles) - 1)}@{{}}}}",
        "\\toprule",
        f"{' & '.join(map(escape, section.titles))} \\\\",
        "\\midrule",
        *(f"{' & '.join(row)} \\\\" for row in rows),
        "\\bottomrule",
        f"\\end{{tabular}}{'}' if wide else ''}",
        "\\par\\medskip",
        f"\\parbox{{\\linewidth}}{{\\raggedright {escape(' '.join(section.notes))}}}",
    ]


def _titles(chosen: list[Column]) -> list[str]:
    """The titles on two lines, a long one broken in its middle."""
    tops, bottoms = zip(*(_broken(column.title) for column in chosen), strict=True)
    rows = [tops, bottoms] if any(tops) else [bottoms]
    return [" & ".join(map(escape, row)) + r" \\" for row in rows]


def _broken(title: str) -> tuple[str, str]:
    if len(title) <= LONGEST_TITLE or " " not in title:
        return "", title
    words = title.split()
    cut = min(range(1, len(words)), key=lambda i: abs(len(" ".join(words[:i])) * 2 - len(title)))
    return " ".join(words[:cut]), " ".join(words[cut:])


def _best(table: Table) -> Row | None:
    """The arm of the lowest loss among several."""
    known = [(row.loss.mean, place) for place, row in enumerate(table.rows) if row.loss]
    return table.rows[min(known)[1]] if len(known) > 1 else None


def _line(row: Row, chosen: list[Column], marks: Sequence[str], style: Style, best: bool) -> str:
    own = {f"{MEASURE_TITLES[name]}{at}" for name in MEASURE_TITLES for at in ("", " at own best")}
    cells = []
    for place, column in enumerate(chosen):
        text = escape(column.text(row))
        if column.title == "arm":
            text = style.arm_labels.get(row.arm, text)
            text = f"\\raggedright {text}" if marks[place] == NAME_MARK else text
        # A line that starts with a bracket would be read as an option of the one before it.
        text = f"{{{text}}}" if text.startswith("[") else text
        cells.append(f"\\textbf{{{text}}}" if best and column.title in own else text)
    return " & ".join(cells) + r" \\"
