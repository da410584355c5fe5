"""How often the verdicts of a table are wrong: thousands of studies, from runs to verdicts.

`python tests/report/statistics/test_verdict_simulation.py` prints the rates as a table.
"""

from __future__ import annotations

import pytest
from simulated_noise import SPREADS
from simulated_studies import Rates, rates, tuned_rates

pytestmark = pytest.mark.slow

STUDIES = 3000  # The standard error of a rate of .05 is .004.
POWER_EFFECT = 4.0  # In sds of one run.


@pytest.mark.parametrize("kind", SPREADS)
@pytest.mark.parametrize("arms", [4, 12])
@pytest.mark.parametrize("seeds", [3, 5])
def test_arms_that_do_nothing_are_rarely_called_better_or_worse(
    kind: str, arms: int, seeds: int
) -> None:
    found = rates(kind, STUDIES, arms, seeds)
    assert found.false_claims <= 0.05
    # With three seeds and rare outliers in all arms the intervals cover 97 %.
    assert found.lowest_coverage > 0.93
    assert found.coverage < (0.975 if kind == "skewed" else 0.97)


@pytest.mark.parametrize("tuning_seeds", [3, 5])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_tuned_arms_that_do_nothing_are_rarely_called_better_or_worse(
    seeds: int, tuning_seeds: int
) -> None:
    found = tuned_rates(STUDIES, 4, seeds, tuning_seeds)
    assert found.false_claims <= 0.05
    assert found.lowest_coverage > 0.93


def test_four_run_sds_are_found_with_five_seeds() -> None:
    found = rates("equal", STUDIES, 4, 5, POWER_EFFECT)
    assert found.found >= 0.8
    assert found.false_claims <= 0.05
    assert 0.93 < found.lowest_coverage <= found.coverage < 0.97


def test_an_effect_as_large_as_the_margin_is_rarely_called_equivalent() -> None:
    margin = 10.0  # In sds of one run: far enough from the other arms, which are all equivalent.
    found = rates("equal", STUDIES, 1, 5, margin, margin * 0.01)
    assert found.equivalent <= 0.05


def _print_all() -> None:
    print(f"{'noise':34} claims coverage lowest found", flush=True)
    for kind in SPREADS:
        for arms, seeds in ((4, 3), (4, 5), (12, 3), (12, 5)):
            _print(f"{kind}, {arms} arms, n = {seeds}", rates(kind, STUDIES, arms, seeds))
    for seeds in (3, 5, 10):
        for tuning in (3, 5):
            name = f"tuned, 4 arms, n = {seeds}, {tuning} tuning"
            _print(name, tuned_rates(STUDIES, 4, seeds, tuning))
    for arms, seeds in ((4, 3), (4, 5), (12, 5)):
        name = f"4 run-sds, {arms} arms, n = {seeds}"
        _print(name, rates("equal", STUDIES, arms, seeds, POWER_EFFECT))


def _print(name: str, found: Rates) -> None:
    coverage = f"{found.coverage:.3f} {found.lowest_coverage:.3f}"
    print(f"{name:34} {found.false_claims:.3f}  {coverage}  {found.found:.3f}", flush=True)


if __name__ == "__main__":
    _print_all()
