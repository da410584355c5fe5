"""Plain values into dataclasses: what fits is converted, everything else is a clear error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.rundir.parse import build, unknown_key


@dataclass(frozen=True)
class Recipe:
    """One field of each kind that a configuration has."""

    servings: int
    title: str = "soup"
    salt: float = 0.5
    hot: bool = True
    oven: int | None = None
    steps: list[str] = field(default_factory=list)
    spice: bool | str = "auto"


def recipe(**values: Any) -> Recipe:
    return build(Recipe, {"servings": 2, **values}, "recipe")


def test_plain_values_are_taken_as_they_are() -> None:
    built = recipe(title="stew", salt=0.25, hot=False, oven=180, steps=["cut", "cook"], spice=True)
    assert built == Recipe(2, "stew", 0.25, False, 180, ["cut", "cook"], True)


def test_defaults_stand_where_nothing_is_given() -> None:
    assert recipe() == Recipe(2)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("salt", 1, 1.0), ("servings", 3.0, 3), ("servings", 1e3, 1000), ("oven", None, None)],
)
def test_numbers_are_converted_where_nothing_is_lost(key: str, value: Any, expected: Any) -> None:
    found = getattr(recipe(**{key: value}), key)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("servings", "2", 2),
        ("salt", "1e-3", 1e-3),
        ("hot", "true", True),
        ("oven", "180", 180),
        ("spice", "false", False),
        ("spice", "mild", "mild"),
        ("title", 20240913, "20240913"),
        ("steps", ["cut", 7], ["cut", "7"]),
    ],
)
def test_text_is_taken_for_what_is_meant_and_a_whole_number_for_a_word(
    key: str, value: Any, expected: Any
) -> None:
    found = getattr(recipe(**{key: value}), key)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("servings", 2.5, "recipe.servings=2.5 is not a whole number."),
        ("servings", "2.5", "recipe.servings='2.5' is not a whole number."),
        ("servings", True, "recipe.servings=True is not a whole number."),
        ("servings", None, "recipe.servings=null is not a whole number."),
        ("servings", float("nan"), "recipe.servings=nan is not a whole number."),
        ("salt", "lots", "recipe.salt='lots' is not a number."),
        ("salt", True, "recipe.salt=True is not a number."),
        ("hot", "yes", "recipe.hot='yes' is not true or false."),
        ("hot", 1, "recipe.hot=1 is not true or false."),
        ("oven", "high", "recipe.oven='high' is not a whole number, or null."),
        ("steps", "cut", "recipe.steps='cut' is not a list; type recipe.steps=[a,b]."),
        ("title", {"a": 1}, "recipe.title={'a': 1} is not a word"),
        ("title", 5.0, "recipe.title=5.0 is not a word (put quotes around a number that is meant"),
        ("steps", ["cut", 7.5], "recipe.steps[1]=7.5 is not a word"),
    ],
)
def test_a_value_of_another_type_is_an_error(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        recipe(**{key: value})
    assert str(caught.value).startswith(message)


@dataclass(frozen=True)
class Oven:
    """An oven.

    Attributes:
        heat: in degrees; 0 turns it off.
    """

    heat: int = 180


def test_null_where_there_is_no_null_is_answered_with_what_the_key_is() -> None:
    with pytest.raises(InputError) as caught:
        build(Oven, {"heat": None}, "oven")
    assert str(caught.value) == (
        "oven.heat=null is not a whole number. heat: in degrees; 0 turns it off."
    )


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        recipe(serving=3)
    assert str(caught.value) == "recipe.serving is not a key; did you mean recipe.servings?"


def test_an_unknown_key_like_no_other_lists_them_all() -> None:
    with pytest.raises(InputError) as caught:
        recipe(xyzzy=3)
    assert str(caught.value) == (
        "recipe.xyzzy is not a key; the keys of recipe are "
        "servings, title, salt, hot, oven, steps, spice."
    )


def test_keys_at_the_top_have_no_path() -> None:
    assert unknown_key("", "sed", ["seed"]) == "sed is not a key; did you mean seed?"
    assert unknown_key("", "q", ["seed"]) == "q is not a key; the keys here are seed."
    assert unknown_key("a", "q", []) == "a.q is not a key; the keys of a are none."


def test_a_key_that_has_no_default_must_be_given() -> None:
    with pytest.raises(InputError, match=r"^recipe\.servings is not set\.$"):
        build(Recipe, {}, "recipe")


def test_a_section_is_built_by_what_is_given_for_it() -> None:
    built = build(Recipe, {"servings": "many"}, "recipe", sections={"servings": len})
    assert built.servings == 4


def test_every_error_is_a_value_error() -> None:
    assert issubclass(InputError, ValueError)
