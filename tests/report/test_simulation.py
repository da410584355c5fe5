"""Thousands of simulated studies: how often the verdicts and the intervals are wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from lm_experiments.report.statistics.contrasts import Contrast, adjust, contrast
from lm_experiments.report.statistics.power import smallest_resolvable
from lm_experiments.report.statistics.verdicts import verdict

pytestmark = pytest.mark.slow

STUDIES = 2000
SEEDS = 5
SPREADS = (0.02, 0.01, 0.02, 0.05, 0.10)  # The baseline's own spread, then each arm's.
SEED_EFFECT = 0.05


def simulate(
    effects: Sequence[float], margin: float | None = None
) -> Iterator[list[Contrast | None]]:
    """Adjusted contrasts of one study after another, of arms with these true differences.

    Every run's loss is its arm's mean, a seed effect all arms share, and noise as wide as SPREADS.
    """
    generator = np.random.default_rng(20240)
    means = 3.0 + np.array([0.0, *effects])[:, None]
    spreads = np.array(SPREADS)[:, None]
    for _ in range(STUDIES):
        shared = generator.normal(0.0, SEED_EFFECT, SEEDS)
        losses = means + shared + spreads * generator.normal(size=(len(SPREADS), SEEDS))
        baseline, *arms = [dict(enumerate(row)) for row in losses.tolist()]
        yield adjust([contrast(arm, baseline, margin) for arm in arms], margin)


def verdicts(contrasts: Sequence[Contrast | None]) -> list[str]:
    return [verdict(item, None, True) for item in contrasts]


def test_without_any_effect_fewer_than_five_per_cent_of_studies_claim_one() -> None:
    claims = {"better", "worse"}
    wrong = sum(not claims.isdisjoint(verdicts(study)) for study in simulate([0.0] * 4))
    # Holm keeps the true rate under 0.05; a rate far below would be a test that never speaks.
    assert 0.02 < wrong / STUDIES < 0.05


def test_the_interval_covers_a_known_effect_as_often_as_it_says() -> None:
    effects = [0.0, 0.03, -0.05, 0.2]
    covered: Counter[int] = Counter()
    for study in simulate(effects):
        for at, (item, effect) in enumerate(zip(study, effects, strict=True)):
            assert item is not None and item.low is not None and item.high is not None
            covered[at] += item.low <= effect <= item.high
    rates = [covered[at] / STUDIES for at in range(len(effects))]
    assert all(0.93 < rate < 0.97 for rate in rates), rates


def test_effects_as_large_as_the_margin_are_rarely_called_equivalent() -> None:
    studies = simulate([0.1, -0.1, 0.1, -0.1], margin=0.1)
    wrong = sum("equivalent" in verdicts(study) for study in studies)
    # Over the family the size is just under 0.05; 0.065 is three standard errors above that.
    assert 0.035 < wrong / STUDIES < 0.065


def test_the_smallest_resolvable_difference_is_found_in_four_fifths_of_studies() -> None:
    spreads = np.hypot(SPREADS[0], SPREADS[1:])
    effects = [smallest_resolvable(float(spread), SEEDS) for spread in spreads]
    found: Counter[int] = Counter()
    for study in simulate([effect or 0.0 for effect in effects]):
        found.update(at for at, item in enumerate(study) if item and item.p and item.p < 0.05)
    rates = [found[at] / STUDIES for at in range(4)]
    assert rates == pytest.approx([0.8] * 4, abs=0.03)
