"""The study that the documentation explains: it is read, and shows every key a study has."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import yaml
from harness.commands import ROOT

from lm_experiments.fields import Use, fields_of
from lm_experiments.rundir.evaluations import Evaluate
from lm_experiments.rundir.ladder import Ladder
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.study import Study, Tuning, read_study

PAGE = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
# For claims without a contrast.
LEFT_OUT = {"published.order"}


def declared(title: str) -> dict[str, Any]:
    """Return the values of a study that the page shows as a file."""
    [text] = re.findall(rf'```yaml title="{title}"\n(.*?)```', PAGE, re.S)
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def keys() -> dict[str, Any]:
    """Return every key that is written, with its default, MISSING where it has none."""
    found: dict[str, Any] = {}
    parts: dict[str, type[Any]] = {
        "": Study,
        "tune.": Tuning,
        "published.": Claim,
        "published.sources.": Source,
        "ladder.": Ladder,
        "evaluate.": Evaluate,
    }
    for prefix, cls in parts.items():
        for field in (f.declared for f in fields_of(cls) if f.use is not Use.DERIVED):
            made = field.default_factory
            found[prefix + field.name] = field.default if made is dataclasses.MISSING else made()
    return found


def test_the_complete_example_has_every_key() -> None:
    values = declared("positions.yaml")
    study = read_study(values)
    assert study.tune is not None and study.name == "positions"
    [claim] = values["published"]
    sections = {
        "tune.": values["tune"],
        "published.": claim,
        "published.sources.": claim["sources"][0],
        "evaluate.": values["evaluate"],
    }
    shown = {*values, *(f"{prefix}{key}" for prefix, of in sections.items() for key in of)}
    ladder = {key for key in keys() if key.startswith("ladder")}
    assert keys().keys() - shown - ladder == LEFT_OUT


def test_a_study_with_a_rule_is_read() -> None:
    assert read_study(declared("by_rule.yaml")).looks == [5, 10, 15, 20]


@pytest.mark.parametrize("key", [key for key in keys() if key != "tune"])
def test_the_table_of_keys_has_their_defaults(key: str) -> None:
    [cell] = re.findall(rf"^\| `{re.escape(key)}` \|[^|]*\|([^|]*)\|", PAGE, re.M)
    default = keys()[key]
    if cell.strip() == "needed":
        assert default is dataclasses.MISSING or default == []
    elif found := re.search(r"`(.*)`", cell):
        assert yaml.safe_load(found[1]) == default
    else:
        assert not default
