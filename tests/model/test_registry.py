"""The registry: names are unique, and a wrong name or option gives a clear error."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
from small_models import EVERY_COMPONENT, tiny_model

from lm_experiments import registry
from lm_experiments.model import Choice, choose, register
from lm_experiments.model.norms import NormOptions, RMSNorm
from lm_experiments.model.positions import RoPEOptions
from lm_experiments.registry import GROUPS, UnknownComponentError, build, component, names


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register components that no other test sees."""
    components = {axis: copy.copy(known) for axis, known in registry._components.items()}
    monkeypatch.setattr(registry, "_components", components)


@dataclass(frozen=True)
class TwiceOptions:
    """Options of the norm these tests register."""

    factor: float = 2.0


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("norm", {"rmsnorm", "layernorm", "layernorm_plain", "scalenorm", "dyt", "none"}),
        ("placement", {"pre", "post"}),
        ("ffn", {"relu", "gelu", "silu", "relu2", "glu", "bilinear", "swiglu", "geglu", "reglu"}),
        ("position", {"none", "sinusoidal", "learned", "rope"}),
        ("attention", {"causal"}),
        ("init", {"cs336", "gpt2", "xavier", "small", "wang", "scaled", "mup"}),
    ],
)
def test_what_can_be_chosen(axis: str, expected: set[str]) -> None:
    assert expected <= set(names(axis))


@pytest.mark.parametrize(("axis", "name"), EVERY_COMPONENT)
def test_every_component_says_what_it_is_and_has_defaults(axis: str, name: str) -> None:
    known = component(axis, name)
    assert known.summary.endswith(".")
    assert known.defaults()["name"] == name
    assert choose(axis, name) == Choice(name, known.options())


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(UnknownComponentError) as caught:
        component("ffn", "swigl")
    message = str(caught.value)
    assert message.startswith("ffn=swigl is not a component; ffn can be ")
    assert message.endswith("Did you mean ffn=swiglu?")
    assert all(name in message for name in names("ffn"))


def test_an_unknown_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(UnknownComponentError) as caught:
        component("position", "zzz")
    assert "Did you mean" not in str(caught.value)


def test_an_unknown_axis_lists_the_axes() -> None:
    with pytest.raises(ValueError, match="'activation' is not a group; the groups are norm, place"):
        names("activation")


@pytest.mark.usefixtures("own_registry")
def test_a_second_registration_of_a_name_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"norm=rmsnorm is registered already, by .*RMSNorm"):
        register("norm", "rmsnorm")(RMSNorm)
    assert component("norm", "rmsnorm").build is RMSNorm


def test_an_unknown_option_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match="position=rope has no option 'base'; it has theta, pair"):
        choose("position", "rope", {"base": 5e5})
    with pytest.raises(ValueError, match="ffn=relu has no option 'width'; it has none"):
        choose("ffn", "relu", {"width": 3})


def test_options_are_the_defaults_but_for_what_is_given() -> None:
    assert choose("position", "rope", {"theta": 5e5}).options == RoPEOptions(5e5, "interleaved")


@pytest.mark.usefixtures("own_registry")
def test_a_component_of_ones_own_is_one_class_and_a_decorator() -> None:
    @register("norm", "twice", TwiceOptions)
    class Twice(RMSNorm):
        """Normalise, and double.

        More about it.
        """

        def __init__(self, options: TwiceOptions, width: int) -> None:
            super().__init__(NormOptions(), width)
            self.factor = options.factor

    assert names("norm")[-1] == "twice"
    assert component("norm", "twice").summary == "Normalise, and double."
    assert component("norm", "twice").defaults() == {"name": "twice", "factor": 2.0}
    assert build("norm", choose("norm", "twice", {"factor": 3.0}), 8).factor == 3.0
    assert isinstance(tiny_model(norm="twice").final_norm, Twice)


def test_a_foreign_registration_does_not_outlive_its_test() -> None:
    assert "twice" not in names("norm")
    assert set(GROUPS) == set(registry._components)
