"""Files for those who read, cite, build or change the repository: they say what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from harness.commands import ROOT

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def version() -> str:
    found = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert found
    return found[1]


def test_the_citation_is_of_this_version() -> None:
    values = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert values["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(values)
    assert values["version"] == version()


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^## \[(.+?)\]", text, re.M)[:2]
    assert version() == (second if first == "Unreleased" else first)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f"## [{version()}] - {citation['date-released']}" in text


def test_the_image_copies_files_that_are_there() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copies = [shlex.split(line)[1:-1] for line in lines if line.startswith("COPY")]
    sources = [source for words in copies for source in words]
    assert "." in sources and len(sources) > 5
    assert not [source for source in sources if not (ROOT / source).exists()]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert not {f"{source}/" for source in sources} & set(ignored)
    assert {".venv/", ".git/", "runs/"} <= set(ignored)


def test_pushes_and_pull_requests_run_the_tests() -> None:
    values = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    assert values[True] == ["push", "pull_request"]
    job = values["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == ["3.10", "3.12"]
    assert job["steps"][-1]["run"] == "make test PYTHON=python"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_asks_for_what_it_needs(form: Path) -> None:
    values = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(values)
    for part in values["body"]:
        assert part["type"] in ("textarea", "input") and part["attributes"]["label"]
    assert values["body"][0]["validations"]["required"] is True
