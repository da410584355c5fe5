"""Every file of ``conf`` composes and passes the checks, and gives what it gave before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from golden_configurations import COMMAND, COMPARED, GOLDEN, as_text, choices, golden
from hydra.core.global_hydra import GlobalHydra

from lm_experiments.conf_dir import conf_dir
from lm_experiments.registry import AXES


@pytest.fixture(autouse=True)
def _no_hydra_left() -> Iterator[None]:
    yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("group", COMPARED)
def test_resolved_configurations_are_as_committed(group: str) -> None:
    committed = (GOLDEN / f"{group}.yaml").read_text(encoding="utf-8")
    assert as_text(golden(group)) == committed, (
        f"The configurations of {group} have changed. If that is meant, run `{COMMAND}` and commit "
        "the difference."
    )


def test_every_group_is_compared() -> None:
    folders = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    assert folders - set(AXES) - {"hydra"} <= set(COMPARED)


def test_every_bundle_for_an_axis_is_part_of_an_architecture() -> None:
    archs = [yaml.safe_load(path.read_text()) for path in (conf_dir() / "arch").glob("*.yaml")]
    used = {word for arch in archs for entry in arch["defaults"] for word in entry.items()}
    for axis in AXES:
        bundles = [path.stem for path in (conf_dir() / axis).glob("*.yaml")]
        assert {(f"override /{axis}", name) for name in bundles} <= used


def test_golden_files_are_those_of_today() -> None:
    assert {path.stem for path in GOLDEN.glob("*")} == set(COMPARED)
    for group in set(COMPARED) - {"default", "study"}:
        committed = yaml.safe_load((GOLDEN / f"{group}.yaml").read_text(encoding="utf-8"))
        assert list(committed) == choices(group)
