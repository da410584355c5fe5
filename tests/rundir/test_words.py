"""Durations and sizes as people say them."""

from __future__ import annotations

import pytest

from lm_experiments.rundir.words import counted, duration, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.44, "0.4 s"),
        (45.4, "45 s"),
        (99, "1 min 40 s"),
        (120, "2 min"),
        (597, "10 min"),
        (720, "12 min"),
        (3570, "1 h"),
        (12000, "3 h 20 min"),
        (187200, "2 d 4 h"),
        (172800, "2 d"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (5.6e9, "5.6 GB"), (2e15, "2000.0 TB")],
)
def test_sizes_are_said_as_people_say_them(count: float, words: str) -> None:
    assert size(count) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "1 run"),
        (0, "0 runs"),
        (2, "2 runs"),
        (0.25, "0.25 run"),
        (1200, "1,200 runs"),
        (2119719, "2,119,719 runs"),
    ],
)
def test_counts_have_their_noun_in_its_form(count: float, words: str) -> None:
    assert counted(count, "run") == words
