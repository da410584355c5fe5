"""``components``: what can be chosen in each group, its options, and how each is typed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

import lm_experiments.training.config  # noqa: F401, registers all components
from lm_experiments.cli.arguments import answered, load_user_code, script_parser
from lm_experiments.conf_dir import conf_dir
from lm_experiments.errors import InputError, did_you_mean
from lm_experiments.fields import fields_of
from lm_experiments.invocation import as_typed
from lm_experiments.registry import GROUPS, MISSING, Component, component, names

# Words that Hydra does not read as strings.
_RESERVED = ("null", "true", "false", "nan", "inf")
DESCRIPTION = """\
List what can be chosen for each part of the architecture, and as tokenizer, optimizer, schedule
and logger: how it is typed, what it does, and its options at their defaults. On a terminal this is
a table; elsewhere each component is one line.

Your own components are listed too: those of installed packages always, those in a file of yours
where code_paths names it, as in training."""
EXAMPLES = """\
examples:
  python scripts/components.py
  python scripts/components.py position
  python scripts/components.py norm code_paths=[my_norm.py]
  python scripts/components.py | grep Shazeer"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 if something cannot be listed."""
    usage = "%(prog)s [-h] [GROUP ...] [code_paths=[FILE,...]]"
    parser = script_parser(usage, DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="GROUP",
        help=f"{', '.join(GROUPS)} (default: all of them)",
    )
    words = parser.parse_args(arguments).words
    return answered(lambda: show(chosen_groups(load_user_code(words)), Console()))


def chosen_groups(words: Sequence[str]) -> list[str]:
    """Return the groups that were named, or all; InputError for another word."""
    for word in words:
        if word not in GROUPS:
            raise InputError(
                f"{word} is not a group of components; the groups are {', '.join(GROUPS)}."
                f"{did_you_mean(word, GROUPS)}"
            )
    return list(words) or list(GROUPS)


@cache
def default_choices() -> dict[str, str]:
    """Return what the primary config chooses in each group."""
    text = (conf_dir() / "train.yaml").read_text(encoding="utf-8")
    entries = [entry for entry in yaml.safe_load(text)["defaults"] if isinstance(entry, dict)]
    return {group: name for entry in entries for group, name in entry.items()}


def choice(found: Component) -> str:
    """Return how a component is chosen, for example ``position=rope``."""
    return f"{found.group}={found.name}"


def options(found: Component) -> list[str]:
    """Return a component's options at their defaults, each as it is typed in a shell."""
    values = found.defaults()
    del values["name"]
    return [shlex.quote(f"{found.section}.{key}={typed(v)}") for key, v in values.items()]


def is_default(found: Component) -> bool:
    """Return whether a component is what its group has when nothing is chosen."""
    return default_choices().get(found.group) == found.name


def plain_lines(groups: Sequence[str]) -> list[str]:
    """Return one line for each component: its choice, its summary, and its options."""
    listed = _listed(groups)
    width = max(len(choice(found)) for found in listed)
    lines = []
    for found in listed:
        default = " (default)" if is_default(found) else ""
        typed = f"  Options: {' '.join(options(found))}" if options(found) else ""
        lines.append(f"{choice(found):{width}}  {found.summary}{default}{typed}")
    return lines


def show(groups: Sequence[str], console: Console) -> None:
    """Print the components: a table on a terminal, else `plain_lines`, which are not wrapped."""
    if not console.is_terminal:
        console.file.write("\n".join([*plain_lines(groups), ""]))
        return
    console.print(_table(groups))
    example = ",".join(names(groups[0])[:2])
    console.print(
        as_typed(
            f"One run:  python scripts/train.py {groups[0]}={names(groups[0])[0]}\n"
            f"A sweep:  python scripts/train.py -m {groups[0]}={example}"
        ),
        style="dim",
        markup=False,
        highlight=False,
    )


def typed(value: object) -> str:
    """Return a value as Hydra reads it back; a required one is three dots."""
    if value == MISSING:
        return "..."
    if isinstance(value, float):
        return repr(value)
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value)
    if plain and str(value).lower() not in _RESERVED:
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _listed(groups: Sequence[str]) -> list[Component]:
    return [component(group, name) for group in groups for name in names(group)]


def _table(groups: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group in groups:
        table.add_row(Text(group, style="bold"))
        for found in _listed([group]):
            cell = Text(found.summary)
            if is_default(found):
                cell.append(" (default)", style="green")
            its_fields = fields_of(cast(Any, found.options))
            for option, field in zip(options(found), its_fields, strict=True):
                cell.append(f"\n{option}  ")
                cell.append(field.summary.replace("`", ""), style="dim")
            table.add_row(Text(choice(found), style="cyan"), cell)
        table.add_row()
    return table
