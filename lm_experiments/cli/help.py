"""What ``scripts/train.py --help`` prints: every group with its choices, then every key."""

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
from lm_experiments.invocation import as_typed
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


def offer_help() -> None:
    """Make the help text known to Hydra, which fills in the groups, the user's own included."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        defaults: Any = OmegaConf.to_container(compose("train"), resolve=True)
    keys = "\n".join(key_lines(all_keys(), flat(defaults))).replace("$", "$$")
    node = {"app_name": "train.py", "template": as_typed(TEMPLATE.format(keys=keys))}
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
    yield "\nshort for keys of the model"
    yield from (f"  {f'{short}={typed(defaults[short])}':<36}  {SHORT[short]}" for short in SHORT)


def summary(key: Key) -> str:
    """Return the first sentence of a key's documentation."""
    first = re.split(r"(?<!al)\. (?=[A-Z])", key.field.documentation)[0]
    return first.replace("`", "").rstrip(".")


def _title(key: Key) -> str:
    section = key.name.rpartition(".")[0]
    return f"{section}, with {key.choice}" if key.choice else section
