"""How a run that ended by itself is classed."""

from __future__ import annotations

import math

import pytest

from lm_experiments.training.history import History
from lm_experiments.training.result import outcome


def history(train: list[float], validation: list[float], norm: float = 1.0) -> History:
    """A run that logged each training loss, and validated at its last steps."""
    seen = History()
    seen.start(0, 10)
    for step, loss in enumerate(train, start=1):
        seen.row(step, loss, norm, rate=1e-3)
    for step, loss in enumerate(validation, start=len(train) - len(validation) + 1):
        seen.validated(step, {"val/loss": loss}, tokens=5)
        seen.measured({"val/loss": loss}, tokens=5)
    return seen


# A guess has a loss of 6.9 nats.
VOCABULARY = 1000

CLASSES = {
    "ok": (([5.0, 4.0, 3.0], [3.2, 3.1]), ("ok", None)),
    "a little noise is ok": (([5.0, 3.0, 3.5], [3.10, 3.12]), ("ok", None)),
    "spiked": (([5.0, 3.0, 4.2, 2.9], [3.0]), ("spiked", 3)),
    "degraded": (([5.0, 3.0, 2.0], [3.0, 3.2]), ("degraded", 3)),
    "diverged": (([5.0, 4.9, 6.0], [6.1]), ("diverged", 3)),
    "ended where it began": (([5.0, 5.0, 5.0], [5.0]), ("diverged", 3)),
    "non-finite": (([5.0, math.nan], [math.nan]), ("non-finite", 2)),
    "infinite": (([5.0, math.inf], [4.0]), ("non-finite", 2)),
    "a validation that is not finite": (([5.0, 4.0], [math.nan]), ("non-finite", 2)),
    "failed-at-init": (([math.inf], [math.inf]), ("failed-at-init", 1)),
}


@pytest.mark.parametrize("case", CLASSES)
def test_outcomes(case: str) -> None:
    (train, validation), expected = CLASSES[case]
    assert outcome(history(train, validation), VOCABULARY) == expected


def test_a_rise_is_one_spike_however_long_it_lasts() -> None:
    assert history([5.0, 3.0, 4.2, 4.5, 2.9, 4.0, 5.0], [3.0]).spikes == 2
    assert history([5.0, 3.0, 4.0, math.nan], [3.0]).spikes == 0


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (math.nextafter(math.log(VOCABULARY), 0), ("ok", None)),
        (math.log(VOCABULARY), ("ok", None)),
        (math.nextafter(math.log(VOCABULARY), math.inf), ("degraded", 3)),
    ],
)
def test_a_run_that_ends_worse_than_a_guess_is_degraded(
    loss: float, expected: tuple[str, int | None]
) -> None:
    """It began worse still, and has never been better."""
    assert outcome(history([9.0, 8.0, 7.0], [loss + 1, loss]), VOCABULARY) == expected


def test_a_gradient_that_is_not_finite_fails_too() -> None:
    assert outcome(history([5.0], [5.0], norm=math.nan), VOCABULARY) == ("failed-at-init", 1)


def test_a_history_survives_its_checkpoint() -> None:
    before = history([5.0, 3.0, 4.5], [3.0])
    after = History()
    after.load(before.state())
    assert outcome(after, VOCABULARY) == outcome(before, VOCABULARY)
    assert after.initial_loss == 5.0
    assert after.seconds == pytest.approx(before.seconds, abs=0.1)


def test_the_best_validation_and_its_step_are_kept() -> None:
    seen = history([5.0, 4.0, 3.0, 2.0], [math.nan, 2.1, 2.1, 3.1])
    after = History()
    after.load(seen.state())
    assert (after.best_validation_loss, after.best_step) == (2.1, 2)
