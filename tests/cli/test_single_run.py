"""The keys of a command mean the same for one run as for a sweep."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BROKEN = '''
from lm_experiments.model import register
from lm_experiments.model.norms import RMSNorm, NormOptions

@register("norm", "raising", NormOptions)
class Raising(RMSNorm):
    """Raises in its first forward pass."""
    def forward(self, x):
        raise RuntimeError("this norm is broken")
'''


def test_a_plan_of_one_run_trains_nothing(train: Callable[..., Any]) -> None:
    answer = train("plan=true", "arm=mine")
    assert answer.code == 0, answer.err
    header, row, *_ = answer.out.splitlines()
    assert header.split()[:2] == ["arm", "parameters"]
    assert row.split()[0] == "mine"
    assert "\nvalidation text: 0 of " in answer.out
    assert "1 run: 1 arm, seed 0; 0 done already, 1 to train, in about " in answer.out
    assert not Path("runs").exists()


def test_the_plan_of_a_run_that_is_done_says_so(train: Callable[..., Any]) -> None:
    assert train().code == 0
    answer = train("plan=true")
    assert answer.code == 0, answer.err
    assert "1 done already, 0 to train." in answer.out


def test_keys_that_do_not_change_the_result_name_no_arm(train: Callable[..., Any]) -> None:
    assert train("ffn=relu", "compile=false", "on_failure=stop", "plan=false").code == 0
    [result] = Path("runs/single").glob("*/result.json")
    words = json.loads(result.read_text())["arm"].split()
    assert "relu" in words
    assert not {"false", "stop"} & set(words)


def test_a_failed_run_is_tried_again(train: Callable[..., Any]) -> None:
    Path("broken.py").write_text(BROKEN)
    answer = train("norm=raising", "code_paths=[broken.py]", "retries=1", "name=again")
    assert answer.code == 1
    assert answer.out.count("failed; trying again (1 of 1).") == 1
    assert "FAILED: RuntimeError: this norm is broken" in answer.err
    [log] = Path("runs/again").glob("*/train.log")
    assert log.read_text().count("Traceback") == 2


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("on_failure=panic", "on_failure=panic is not known; it can be continue or stop."),
        ("retries=-1", "retries=-1 must be"),
        ("retries=often", "retries='often' is not a whole number"),
        ("plan=perhaps", "plan='perhaps' is not true or false"),
    ],
)
@pytest.mark.parametrize("sweep", [(), ("-m", "seed=0,1")])
def test_values_that_a_key_cannot_have_are_refused(
    word: str, sentence: str, sweep: tuple[str, ...], train: Callable[..., Any]
) -> None:
    answer = train(*sweep, word)
    assert answer.code == 2, answer.out
    assert sentence in answer.err
    assert not Path("runs").exists()
