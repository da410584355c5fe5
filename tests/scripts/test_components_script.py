"""The list of components: complete, typed as Hydra reads it, one line each, and quick to start."""

from __future__ import annotations

import io
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from harness.commands import imported
from hydra.core.override_parser.overrides_parser import OverridesParser
from rich.console import Console

from lm_experiments import registry as components
from lm_experiments.cli import components as catalogue
from lm_experiments.cli.components import main
from lm_experiments.errors import InputError
from lm_experiments.model import AXES, ModelConfig
from lm_experiments.registry import GROUPS
from lm_experiments.training import user_code

pytestmark = pytest.mark.usefixtures("registry_as_before")

MY_NORM = '''
from __future__ import annotations
from dataclasses import dataclass
from lm_experiments.registry import register

@dataclass(frozen=True)
class Options:
    strength: float = 0.5

@register("norm", "{name}", Options)
class Mine:
    """A norm of [my] own."""
'''


@dataclass(frozen=True)
class AwkwardOptions:
    """Options of every type that a component can have."""

    nothing: int | None = None
    yes: bool = True
    small: float = 1e-12
    whole: int = 3
    large: float = float("inf")
    word: str = "half"
    spaced: str = "two words"
    reserved: str = "null"
    number: str = "1e5"
    empty: str = ""
    quoted: str = 'it\'s "so"'
    several: list[str] = field(default_factory=lambda: ["a", "b c"])


def my_norm(folder: Path, name: str = "mine") -> Path:
    path = folder / f"{name}_norm.py"
    path.write_text(MY_NORM.format(name=name), encoding="utf-8")
    return path


def test_lists_every_component_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    known = [f"{group}={name}" for group in GROUPS for name in components.names(group)]
    assert [line.split()[0] for line in lines] == known
    [rope] = [line for line in lines if line.startswith("position=rope ")]
    assert components.component("position", "rope").summary in rope
    assert " model.position.theta=10000.0 model.position.pairing=interleaved" in rope


def test_lists_the_axes_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["placement", "init"]) == 0
    axes = [line.partition("=")[0] for line in capsys.readouterr().out.splitlines()]
    assert list(dict.fromkeys(axes)) == ["placement", "init"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [("positon", "Did you mean position?"), ("swiglu", "groups are norm,")],
)
def test_an_unknown_axis_is_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], word: str, expected: str
) -> None:
    assert main([word]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {word} is not a group")
    assert expected in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("form", ["code_paths={}", "code_paths=[{}]"])
def test_lists_a_component_of_the_users_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    assert main(["norm", form.format(my_norm(tmp_path))]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split("  ")[0] == "norm=mine"
    assert last.endswith("A norm of [my] own.  Options: model.norm.strength=0.5")


def test_several_files_can_be_named(tmp_path: Path) -> None:
    one, two = my_norm(tmp_path, "one"), my_norm(tmp_path, "two")
    assert user_code.take_code_paths(["norm", f"code_paths=[{one},{two}]"]) == ["norm"]
    assert components.names("norm")[-2:] == ["one", "two"]


@pytest.mark.parametrize("value", ["", "null", "[1]", "a.py,b.py", "[a.py", "absent.py"])
def test_code_paths_that_name_no_files_are_refused(value: str) -> None:
    with pytest.raises(InputError, match="code_paths"):
        user_code.take_code_paths([f"code_paths={value}"])


def test_options_are_typed_as_hydra_reads_them() -> None:
    components.add("norm", "awkward", object, AwkwardOptions, "")
    found = components.component("norm", "awkward")
    words = shlex.split(" ".join(catalogue.options(found)))
    overrides = OverridesParser.create().parse_overrides(words)
    read = {override.key_or_group: override.value() for override in overrides}
    expected = {f"model.norm.{k}": v for k, v in vars(AwkwardOptions()).items()}
    assert read == expected
    assert {k: type(v) for k, v in read.items()} == {k: type(v) for k, v in expected.items()}


def test_the_default_architecture_is_that_of_the_code() -> None:
    for axis in AXES:
        listed = [components.component(axis, name) for name in components.names(axis)]
        default = getattr(ModelConfig(), axis).name
        assert [c.name for c in listed if catalogue.is_default(c)] == [default]


def test_every_group_has_a_default() -> None:
    for group in GROUPS:
        assert components.component(group, catalogue.default_choices()[group])


def test_on_a_terminal_nothing_is_wider_than_it(tmp_path: Path) -> None:
    user_code.take_code_paths([f"code_paths={my_norm(tmp_path)}"])
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    catalogue.show(AXES, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "A norm of [my] own." in text
    assert "model.position.pairing=interleaved" in text
    assert "scripts/train.py -m norm=rmsnorm,layernorm" in text


def test_starts_without_the_training_libraries() -> None:
    assert imported("components", ["lightning", "wandb", "torch._dynamo"]) == "[]"
