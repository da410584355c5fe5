"""The study that the documentation explains: it is read, and shows every key a study has."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import yaml
from harness.commands import ROOT

from lm_experiments.rundir.evaluations import Evaluate
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.study import Study, Tuning, read_study

PAGE = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
# Follows from the seeds; written by the program; for claims without a contrast.
LEFT_OUT = {"looks", "tune.chosen", "published.order"}


def declared(title: str) -> dict[str, Any]:
    """Return the values of a study that the page shows as a file."""
    [text] = re.findall(rf'```yaml title="{title}"\n(.*?)```', PAGE, re.S)
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def keys() -> dict[str, Any]:
    """Return every key of a study with its default, MISSING where it has none."""
    found: dict[str, Any] = {}
    parts: dict[str, type[Any]] = {
        "": Study,
        "tune.": Tuning,
        "published.": Claim,
        "published.sources.": Source,
        "evaluate.": Evaluate,
    }
    for prefix, cls in parts.items():
        for field in dataclasses.fields(cls):
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
    assert keys().keys() - shown == LEFT_OUT


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
