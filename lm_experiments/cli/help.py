"""What ``--help`` of train and prepare_data prints: groups with their choices, then keys."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hydra.core.config_store import ConfigStore

from lm_experiments.cli.reference import (
    Entry,
    all_groups,
    by_section,
    choice_words,
    entries,
    sentence,
)
from lm_experiments.data import DataConfig
from lm_experiments.errors import InputError
from lm_experiments.fields import fields_of
from lm_experiments.invocation import as_typed
from lm_experiments.study.choices import choices
from lm_experiments.study.hints import meant
from lm_experiments.study.keys import SHORT
from lm_experiments.study.words import parted

WIDTH = 80
FLAGS = ("--help", "-h")
TEMPLATE = """\
Train language models that differ in one thing, and compare them.

  python scripts/train.py                                    one run
  python scripts/train.py position=learned seed=1            another run
  python scripts/train.py -m placement=pre,post seed=0,1  every pair
  python scripts/table.py runs/NAME                          their table

The same command again continues interrupted runs, and skips finished ones.

== What can be chosen (name=value) ==
$APP_CONFIG_GROUPS
== Values (key=value), at their defaults ==
{keys}

A key, a section or a group in full: python scripts/train.py --help optimizer
One configuration, resolved:         python scripts/train.py --cfg job KEY=VALUE
"""


PREPARATION = """\
Download and encode the corpus that a training command names, ahead of time: python scripts/train.py
with the same words then finds it. The words of a training command are understood as they are, and
those that say nothing of the text are left aside. It is safe to repeat.

  python scripts/prepare_data.py data=tinystories cache_dir=/shared/cache
  python scripts/prepare_data.py data=text data.path=notes/ tokenizer=bytes
  python scripts/prepare_data.py data=hf data.dataset=roneneldan/TinyStories

== What can be chosen (name=value) ==
{choices}

== Values (key=value), at their defaults ==
{keys}
"""


def offer_help() -> None:
    """Make train's help known to Hydra, which fills in the groups, the user's own included."""
    _offer("train.py", TEMPLATE.format(keys=_escaped(key_lines(entries(), SHORT))))


def offer_preparation_help() -> None:
    """Make known to Hydra what prepare_data prints: the keys that say something of the text."""
    names = {f"data.{field.name}" for field in fields_of(DataConfig)} | {"cache_dir", "code_paths"}
    told = [
        entry
        for entry in entries()
        if entry.key.name in names or entry.key.name.startswith("tokenizer.")
    ]
    found = [f"{group}: {', '.join(choices(group))}" for group in ("data", "tokenizer")]
    text = PREPARATION.format(choices=_escaped(found), keys=_escaped(key_lines(told)))
    _offer("prepare_data.py", text)


def _escaped(lines: Iterable[str]) -> str:
    return "\n".join(lines).replace("$", "$$")


def _offer(program: str, text: str) -> None:
    node = {"app_name": program, "template": as_typed(text)}
    ConfigStore.instance().store(name="lm_experiments", group="hydra/help", node=node)


def asked_for(words: Sequence[str]) -> list[str]:
    """Return the keys and groups of which a command line asks for help; empty for all of it."""
    options, rest = parted(words)
    return [word for word in rest if "=" not in word] if set(FLAGS) & set(options) else []


def key_lines(listed: Iterable[Entry], short: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield each key with its default, and below it what it means, section by section.

    Keys that may be typed without their section come last.
    """
    for title, group in by_section([*listed]):
        yield f"\n{title}" if title else ""
        for entry in group:
            yield f"  {entry.assigned}"
            yield _wrapped(sentence(entry.key.field.summary))
    if short:
        yield "\nshort for keys of the model"
        yield from (f"  {word} is {key}" for word, key in short.items())


def explanation(words: Sequence[str]) -> str:
    """Return all that is known of some keys, sections or groups; InputError for another word."""
    return "\n".join(line for word in words for line in _explained(word))


def _explained(word: str) -> Iterator[str]:
    word = SHORT.get(word, word)
    if word in all_groups():
        for name, what in choice_words(word).items():
            yield f"{word}={name}"
            yield _wrapped(what)
    found = [entry for entry in entries() if _is_of(entry, word)]
    if not found and word not in all_groups():
        raise InputError(f"{word} is neither a key nor a group; {meant(word)}")
    for title, group in by_section(found):
        yield f"\n{title}" if title else ""
        for entry in group:
            yield f"  {entry.assigned}  ({entry.allowed})"
            yield _wrapped(f"{entry.words} {entry.effect}")


def _is_of(entry: Entry, word: str) -> bool:
    """Return whether a key is the word, or one of the section or group that the word names."""
    return re.match(rf"(model\.)?{re.escape(word)}(\.|$)", entry.key.name) is not None


def _wrapped(text: str) -> str:
    plain = text.replace("`", "")
    return textwrap.fill(plain, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
