"""What ``--help`` of train and prepare_data prints: groups with their choices, then keys."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from lm_experiments.cli.components import typed
from lm_experiments.conf_dir import conf_dir
from lm_experiments.data import DataConfig
from lm_experiments.fields import fields_of
from lm_experiments.invocation import as_typed
from lm_experiments.study.choices import choices
from lm_experiments.study.keys import SHORT, Key, all_keys, flat

TEMPLATE = """\
Train language models that differ in one thing, and compare them.

  python scripts/train.py                                   one run of the defaults
  python scripts/train.py position=learned seed=1           change what you like
  python scripts/train.py -m placement=pre,post seed=0,1,2  a sweep: every combination
  python scripts/table.py runs/NAME                         its table and curves again

The same command again continues interrupted runs and starts nothing that is done.

== What can be chosen (name=value) ==
$APP_CONFIG_GROUPS
== Values (key=value), at their defaults ==
{keys}

One configuration, resolved:  python scripts/train.py --cfg job [key=value ...]
What each component does:     python scripts/components.py [GROUP]
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
    defaults = _defaults()
    short = [f"  {f'{key}={typed(defaults[key])}':<36}  {SHORT[key]}" for key in SHORT]
    lines = [*key_lines(all_keys(), defaults), "\nshort for keys of the model", *short]
    _offer("train.py", TEMPLATE.format(keys=_escaped(lines)))


def offer_preparation_help() -> None:
    """Make known to Hydra what prepare_data prints: the keys that say something of the text."""
    names = {f"data.{field.name}" for field in fields_of(DataConfig)} | {"cache_dir", "code_paths"}
    keys = [key for key in all_keys() if key.name in names or key.name.startswith("tokenizer.")]
    found = [f"{group}: {', '.join(choices(group))}" for group in ("data", "tokenizer")]
    lines = key_lines(keys, _defaults())
    text = PREPARATION.format(choices=_escaped(found), keys=_escaped(lines))
    _offer("prepare_data.py", text)


def _defaults() -> dict[str, Any]:
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        values: Any = OmegaConf.to_container(compose("train"), resolve=True)
    return flat(values)


def _escaped(lines: Iterable[str]) -> str:
    return "\n".join(lines).replace("$", "$$")


def _offer(program: str, text: str) -> None:
    node = {"app_name": program, "template": as_typed(text)}
    ConfigStore.instance().store(name="lm_experiments", group="hydra/help", node=node)


def key_lines(keys: Iterable[Key], defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key with its default and its documentation, section by section."""
    # A stable sort: keys without a section come first.
    ordered = sorted(keys, key=lambda key: "." in key.name)
    for title, group in itertools.groupby(ordered, _title):
        yield f"\n{title}" if title else ""
        for key in group:
            default = key.field.default if key.choice else defaults.get(key.name)
            yield f"  {f'{key.name}={typed(default)}':<36}  {summary(key)}"


def summary(key: Key) -> str:
    """Return the first sentence of a key's documentation."""
    first = re.split(r"(?<!al)\. (?=[A-Z])", key.field.documentation)[0]
    return first.replace("`", "").rstrip(".")


def _title(key: Key) -> str:
    section = key.name.rpartition(".")[0]
    return f"{section}, with {key.choice}" if key.choice else section
