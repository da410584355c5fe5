"""``docs/keys.md``: every choice and every key, as a page.

``python -m lm_experiments.cli.keys_page docs/keys.md`` writes it anew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from lm_experiments.cli.components import default_choices
from lm_experiments.cli.reference import (
    Entry,
    all_groups,
    by_section,
    choice_words,
    entries,
)
from lm_experiments.fields import Use, documentation_of
from lm_experiments.study import sweeper
from lm_experiments.study.choices import offer_choices
from lm_experiments.study.keys import SHORT
from lm_experiments.training.config import CACHE_VARIABLE
from lm_experiments.training.wandb.settings import VARIABLES

# The sections that the page begins with; the others follow in the order of the primary config.
_FIRST = ("", "study", "arch", "size", "model")
HEAD = """\
# Every key

<!-- Written by `make docs` from the code: the words stand beside each default. -->

`name=value` chooses one of a group, and `key=value` sets a value:

```bash
python scripts/train.py norm=layernorm optimizer.lr=1e-3
python scripts/train.py --help optimizer
```

Each key is listed with its default and with what it can be. A key without a word in italics
determines the result of a run, and its value makes another arm. The others:
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    for name, words in documentation_of(Use).items():
        if Use[name] not in (Use.RESULT, Use.DERIVED):
            yield f"- *{name.lower()}*: {words}"
    listed: dict[str, list[tuple[str, list[Entry]]]] = {}
    for title, group in by_section(entries()):
        listed.setdefault(_top(group[0].key.name), []).append((title, group))
    for top in dict.fromkeys([*_FIRST, *default_choices(), *all_groups(), *listed]):
        yield f"\n## {top or 'The run and the command'}\n"
        yield from _choices(top)
        for title, group in listed.get(top, []):
            if title != top:
                yield f"\n### {title}\n"
            elif top in all_groups():
                yield f"\n### Keys of {top}\n"
            yield from map(_item, group)
    yield "\n## Short names\n"
    yield from (f"- `{short}` is `{key}`" for short, key in SHORT.items())


def main(path: str) -> None:
    """Write the page to a file."""
    # The page is the same for everybody.
    for variable in (CACHE_VARIABLE, *VARIABLES.values()):
        os.environ.pop(variable, None)
    offer_choices()
    sweeper.register()
    Path(path).write_text("\n".join([*page(), ""]), encoding="utf-8")


def _top(key: str) -> str:
    """Return the heading that a key stands under: its group, or its section."""
    first, *rest = key.split(".")
    if first == "model" and len(rest) > 1:
        return rest[0]
    return first if rest else ""


def _choices(group: str) -> Iterator[str]:
    if group not in all_groups():
        return
    for name, words in choice_words(group).items():
        default = " (default)" if default_choices().get(group) == name else ""
        yield f"- `{group}={name}`{default}: {words}"


def _item(entry: Entry) -> str:
    use = entry.key.use
    mark = "" if use is Use.RESULT else f" *{use.name.lower()}*"
    return f"- `{entry.assigned}` ({entry.allowed}): {entry.words}{mark}"


if __name__ == "__main__":
    main(sys.argv[1])
