"""``components``: what can be chosen on each axis, its options, and how each is typed."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lm_experiments.cli.arguments import answered, load_user_code, script_parser
from lm_experiments.errors import InputError
from lm_experiments.invocation import as_typed
from lm_experiments.model import AXES, ModelConfig
from lm_experiments.model.registry import Component, component, names

# Words that Hydra reads as something else than themselves.
_RESERVED = ("null", "true", "false", "nan", "inf")
DESCRIPTION = """\
List what can be chosen on each axis of the architecture: how it is typed, what it does, and its
options at their defaults. On a terminal this is a table; elsewhere each component is one line.

Your own components are listed too: those of installed packages always, those in a file of yours
where code_paths names it, as in training."""
EXAMPLES = """\
examples:
  python scripts/components.py
  python scripts/components.py position
  python scripts/components.py norm code_paths=[my_norm.py]
  python scripts/components.py | grep Shazeer"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 where something cannot be listed."""
    usage = "%(prog)s [-h] [AXIS ...] [code_paths=[FILE,...]]"
    parser = script_parser(usage, DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="AXIS",
        help="norm, placement, ffn, position, attention or init (default: all of them)",
    )
    words = parser.parse_args(arguments).words
    return answered(lambda: show(chosen_axes(load_user_code(words)), Console()))


def chosen_axes(words: Sequence[str]) -> list[str]:
    """Return the axes that were named, or all of them where none was.

    Raises:
        InputError: for a word that is not an axis; the message lists them.
    """
    for word in words:
        if word not in AXES:
            near = difflib.get_close_matches(word, AXES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise InputError(f"{word} is not an axis; the axes are {', '.join(AXES)}.{hint}")
    return list(words) or list(AXES)


def choice(found: Component) -> str:
    """Return how a component is chosen, for example ``position=rope``."""
    return f"{found.axis}={found.name}"


def options(found: Component) -> list[str]:
    """Return a component's options at their defaults, each as it is typed in a shell."""
    values = found.defaults()
    del values["name"]
    return [
        shlex.quote(f"model.{found.axis}.{key}={_typed(value)}") for key, value in values.items()
    ]


def is_default(found: Component) -> bool:
    """Return whether a component is what its axis has when nothing is chosen."""
    return bool(getattr(ModelConfig, found.axis).name == found.name)


def plain_lines(axes: Sequence[str]) -> list[str]:
    """Return one line for each component: its choice, its summary, and its options."""
    listed = _listed(axes)
    width = max(len(choice(found)) for found in listed)
    return [f"{choice(found):{width}}  {_description(found)}" for found in listed]


def show(axes: Sequence[str], console: Console) -> None:
    """Print the components: a table on a terminal, else `plain_lines`, which are not wrapped."""
    if not console.is_terminal:
        console.file.write("\n".join([*plain_lines(axes), ""]))
        return
    console.print(_table(axes))
    example = ",".join(names(axes[0])[:2])
    console.print(
        as_typed(
            f"One run:  python scripts/train.py {axes[0]}={names(axes[0])[0]}\n"
            f"A sweep:  python scripts/train.py -m {axes[0]}={example}"
        ),
        style="dim",
        markup=False,
        highlight=False,
    )


def _typed(value: object) -> str:
    """Return a value as Hydra reads it back."""
    if isinstance(value, float):
        return repr(value)
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value)
    if plain and str(value).lower() not in _RESERVED:
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _listed(axes: Sequence[str]) -> list[Component]:
    return [component(axis, name) for axis in axes for name in names(axis)]


def _description(found: Component) -> str:
    default = " (default)" if is_default(found) else ""
    typed = f"  Options: {' '.join(options(found))}" if options(found) else ""
    return f"{found.summary}{default}{typed}"


def _table(axes: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for axis in axes:
        table.add_row(Text(axis, style="bold"))
        for found in _listed([axis]):
            table.add_row(Text(choice(found), style="cyan"), _cell(found))
        table.add_row()
    return table


def _cell(found: Component) -> Text:
    cell = Text(found.summary)
    if is_default(found):
        cell.append(" (default)", style="green")
    for option in options(found):
        cell.append(f"\n{option}", style="dim")
    return cell
