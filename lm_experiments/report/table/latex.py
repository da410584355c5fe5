"""A table for a paper: LaTeX with booktabs rules, with its notes below."""

from __future__ import annotations

import re

from lm_experiments.report.table.columns import Column, columns
from lm_experiments.report.table.effects import TITLES, effect_cells, effect_notes
from lm_experiments.report.table.notes import headline, legend, notes
from lm_experiments.report.table.rows import Row, Table

LONGEST_TITLE = 8
MOST_EFFECTS = 12
# Narrow enough that the error of a failed run does not push the table off the page.
OUTCOME_MARK = "p{2.4cm}"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_SIGNED = re.compile(r"(?<![\w.-])([+-])(?=\d)")


def latex(table: Table) -> str:
    r"""A `table` environment to `\input`; the document needs `\usepackage{booktabs}`."""
    chosen = [column for column in columns(table) if column.printed]
    marks = [OUTCOME_MARK if c.title == "outcome" else "r" if c.right else "l" for c in chosen]
    caption = f"{table.sweep.record.name}: {headline(table)} {legend(table)}"
    label = re.sub(r"[^A-Za-z0-9]+", "-", table.sweep.record.name).strip("-")
    lines = [
        "% Needs \\usepackage{booktabs}.",
        "\\begin{table}[tbp]",
        "\\centering",
        "\\scriptsize",
        "\\setlength{\\tabcolsep}{2pt}",
        f"\\caption{{{escape(caption)}}}",
        f"\\label{{tab:{label}}}",
        f"\\begin{{tabular}}{{@{{}}{''.join(marks)}@{{}}}}",
        "\\toprule",
        *_titles(chosen),
        "\\midrule",
        *(_line(row, chosen) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\par\\medskip",
        f"\\parbox{{\\linewidth}}{{\\raggedright {escape(' '.join(notes(table)))}}}",
        *_effects(table),
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _effects(table: Table) -> list[str]:
    """The effects of a small grid, below the notes."""
    effects = table.effects.effects if table.effects else ()
    if not effects or len(effects) > MOST_EFFECTS:
        return []
    rows = [[f"{{{escape(cell)}}}" for cell in effect_cells(effect)] for effect in effects]
    return [
        "\\par\\medskip",
        "\\begin{tabular}{@{}lrrr@{}}",
        "\\toprule",
        f"{' & '.join(map(escape, TITLES))} \\\\",
        "\\midrule",
        *(f"{' & '.join(row)} \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\par\\medskip",
        f"\\parbox{{\\linewidth}}{{\\raggedright {escape(' '.join(effect_notes(table)))}}}",
    ]


def escape(text: str) -> str:
    """Text as LaTeX prints it, with specials escaped and signs of numbers set as minus signs."""
    plain = "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))
    return _SIGNED.sub(r"$\1$", plain)


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


def _line(row: Row, chosen: list[Column]) -> str:
    cells = [escape(column.text(row)) for column in chosen]
    # A line that starts with a bracket would be read as an option of the one before it.
    return " & ".join(f"{{{c}}}" if c.startswith("[") else c for c in cells) + r" \\"
