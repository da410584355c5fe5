"""What a study asks of its trained runs, and the file in which each run keeps the answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.rundir.evaluations import (
    Evaluate,
    Evaluation,
    position_ends,
    read_evaluations,
    write_evaluations,
)
from lm_experiments.rundir.study import read_study

STUDY: dict[str, Any] = {"name": "x", "baseline": "a", "arms": {"a": [], "b": ["ffn=relu"]}}


@pytest.mark.parametrize(
    ("evaluate", "sentence"),
    [
        ({}, "study.evaluate asks for nothing; write evaluate: {contexts: "),
        ({"contexts": [2, 1]}, r"study.evaluate.contexts=\[2.0, 1.0\] must be different multiples"),
        ({"contexts": [0]}, r"study.evaluate.contexts=\[0.0\] must be"),
        ({"contexts": [1, 1]}, r"study.evaluate.contexts=\[1.0, 1.0\] must be"),
        ({"contexts": 2}, "study.evaluate.contexts=2 is not a list"),
        ({"data": {"my": ["data.path=x"]}}, r"study.evaluate.data.my=\['data.path=x'\] is no corp"),
        ({"data": {"my": ["data=kjv", "norm=none"]}}, "study.evaluate.data.my=.*is no corpus"),
        ({"data": {"my": ["data=kjv", "data=text"]}}, "study.evaluate.data.my=.*is no corpus"),
        ({"tasks": ["piqa", "piqa"]}, "study.evaluate has 'piqa' twice; give"),
        ({"contexts": [2], "data": {"2x": ["data=kjv"]}}, "study.evaluate has '2x' twice"),
        ({"context": [1]}, "study.evaluate.context is not a key; did you mean study.evaluate.cont"),
    ],
)
def test_what_cannot_be_measured_is_refused(evaluate: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_study({**STUDY, "evaluate": evaluate})


def test_what_is_asked_has_a_name_that_says_what_was_measured() -> None:
    words = ["data=text", "data.path=my.txt"]
    asked = Evaluate([0.5, 2], {"my": words}, ["piqa"]).asked
    assert [each.title for each in asked] == ["0.5x", "2x", "my", "piqa"]
    assert [each.key(64) for each in asked] == [
        "context: 32",
        "context: 128",
        "data: data=text data.path=my.txt",
        "task: piqa",
    ]
    assert asked[0].key(1) == "context: 1"


def test_positions_are_told_apart_at_the_trained_length_and_its_halves_and_doubles() -> None:
    assert position_ends(8, 32) == [1, 2, 4, 8, 16, 32]
    assert position_ends(8, 4) == [1, 2, 4]
    assert position_ends(100, 250) == [1, 3, 6, 12, 25, 50, 100, 200, 250]
    assert position_ends(1, 1) == [1]
    found = Evaluation(32, 8, 2.0, 6, None, [8, 16, 32], [1.0, 2.0, 5.0], [2, 1, 3])
    assert found.between(0, 8) == 1.0
    assert found.between(8) == (2.0 + 3 * 5.0) / 4
    assert found.between(32) is None


def test_evaluations_are_of_the_weights_that_they_were_measured_on(tmp_path: Path) -> None:
    assert read_evaluations(tmp_path, 3.5) == {}
    found = {"context: 8": Evaluation(8, 8, math.inf, 40, None, [8], [math.inf], [40])}
    write_evaluations(tmp_path, 3.5, found)
    assert read_evaluations(tmp_path, 3.5) == found
    assert read_evaluations(tmp_path, 3.25) == {}
    for text in ("{", "[]", '{"found": 3}', '{"val_loss": 3.5, "found": {"x": {"los": 1}}}'):
        (tmp_path / "evaluations.json").write_text(text)
        with pytest.raises(InputError, match=r"evaluations.json is damaged .*; remove it, and"):
            read_evaluations(tmp_path, 3.5)
