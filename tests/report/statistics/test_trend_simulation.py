"""How often slopes and verdicts of ladders are wrong: thousands of simulated ladders.

`python tests/report/statistics/test_trend_simulation.py` prints the rates as a table.
"""

from __future__ import annotations

import pytest
from simulated_ladders import Noise, Rates, ladder_rates

LADDERS, MANY = 1500, 4000  # The standard error of a rate of .05 is .006, or .0034.
EQUAL, SHRINKING = (0.004, 0.004, 0.004), (0.012, 0.006, 0.003)
NOISES = {
    "equal": Noise(EQUAL),
    "correlated": Noise(EQUAL, correlation=0.7),
    "noisy first rung": Noise(SHRINKING, correlation=0.3),
    "noisy last rung": Noise(SHRINKING[::-1]),
    "outliers": Noise(EQUAL, outliers=0.1),
}
VANISHING = {
    "measured": (0.265, 0.153, 0.084),
    "halved": (0.05, 0.025, 0.0125),
    "gone": (0.05, 0.02, 0.0),
}
CONSTANT = (0.05, 0.05, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seeds", [3, 5])
def test_slopes_are_covered_and_what_vanishes_never_holds(noise: str, seeds: int) -> None:
    for effects in VANISHING.values():
        found = ladder_rates(effects, NOISES[noise], LADDERS, 1, seeds)
        assert 0.93 < found.coverage < (0.985 if noise == "outliers" else 0.97)
        assert found.verdicts.get("holds", 0.0) <= 0.002
        assert found.verdicts.get("grows", 0.0) <= 0.002


@pytest.mark.slow
@pytest.mark.parametrize("contrasts", [1, 4])
@pytest.mark.parametrize("noise", ["equal", "correlated", "noisy first rung"])
def test_what_does_not_change_is_rarely_said_to_change(noise: str, contrasts: int) -> None:
    found = ladder_rates(CONSTANT, NOISES[noise], MANY, contrasts, 5)
    assert found.changes <= 0.06


@pytest.mark.slow
def test_what_keeps_two_thirds_is_on_the_line_and_less_is_rarely_said_to_hold() -> None:
    found = ladder_rates((0.05, 0.05, 0.05 * 0.66), NOISES["noisy last rung"], LADDERS, 1, 3)
    assert found.verdicts.get("holds", 0.0) <= 0.05


@pytest.mark.slow
def test_clear_cases_get_their_verdict() -> None:
    assert (
        ladder_rates(VANISHING["measured"], NOISES["equal"], 500, 1, 3).verdicts["shrinks"] > 0.98
    )
    assert ladder_rates(CONSTANT, NOISES["equal"], 500, 1, 3).verdicts["holds"] > 0.8
    assert ladder_rates((0.02, 0.05, 0.08), NOISES["equal"], 500, 1, 3).verdicts["grows"] > 0.9


def _print_all() -> None:
    cases = {
        **VANISHING,
        "constant": CONSTANT,
        "none": (0.0, 0.0, 0.0),
        "two thirds": (0.05, 0.04, 0.033),
    }
    print(f"{'effect':12} {'noise':18} n  coverage verdicts", flush=True)
    for effect, effects in cases.items():
        for name, noise in NOISES.items():
            for seeds in (3, 5):
                _print(effect, name, seeds, ladder_rates(effects, noise, LADDERS, 1, seeds))


def _print(effect: str, noise: str, seeds: int, found: Rates) -> None:
    shares = ", ".join(f"{word} {share:.3f}" for word, share in sorted(found.verdicts.items()))
    print(f"{effect:12} {noise:18} {seeds}  {found.coverage:.3f}    {shares}", flush=True)


if __name__ == "__main__":
    _print_all()
