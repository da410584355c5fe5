"""Studies with a ladder, as a sweep's record has them: every arm once at each rung."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from synthetic_studies import StudyFactory

from lm_experiments.rundir.ladder import BUDGET, FIXED, TUNED_EACH, Ladder, Rung

STEPS = (75, 300, 900)
TOKENS_PER_STEP, FLOPS_PER_TOKEN = 1024, 4_000_000
BASELINE = "SwiGLU"
# What was measured of SiLU at these budgets.
SILU = (0.265, 0.153, 0.084)


def ladder_of(
    arms: Sequence[str], contrasts: Sequence[tuple[str, str]] = (), rate: str = FIXED
) -> Ladder:
    """A ladder by budget, the first arm its baseline."""
    rungs = [Rung(f"{n} steps", {arm: f"{arm} at {n} steps" for arm in arms}) for n in STEPS]
    pairs = [list(pair) for pair in contrasts] or [[arm, arms[0]] for arm in arms[1:]]
    return Ladder(BUDGET, list(STEPS), rungs=rungs, baseline=arms[0], contrasts=pairs, rate=rate)


def climbing(
    study: StudyFactory,
    effects: Mapping[str, Sequence[float]],
    contrasts: Sequence[tuple[str, str]] = (),
    noise: float = 0.004,
) -> StudyFactory:
    """Give a study these arms at three budgets: their differences to `BASELINE` by rung."""
    arms = [BASELINE, *effects]
    study.ladder = ladder_of(arms, contrasts, TUNED_EACH if study.tuned else FIXED)
    study.arms, study.margin = {}, None
    for at, (rung, steps) in enumerate(zip(study.ladder.rungs, STEPS, strict=True)):
        for arm, label in rung.arms.items():
            study.arms[label] = [
                *([f"ffn={arm}"] if arm != BASELINE else []),
                f"trainer.max_steps={steps}",
            ]
            for seed in (*study.seeds, *study.tuning_seeds):
                _run(study, arm, label, seed, steps, effects.get(arm, (0.0,) * 3)[at], noise)
    study.baseline = study.ladder.rungs[-1].arms[BASELINE]
    study.contrasts = [
        [rung.arms[arm], rung.arms[reference]]
        for rung in study.ladder.rungs
        for arm, reference in study.ladder.contrasts
    ]
    return study


def _run(
    study: StudyFactory, arm: str, label: str, seed: int, steps: int, effect: float, noise: float
) -> None:
    shared = random.Random(f"seed {seed}").gauss(0, 0.012)
    own = random.Random(f"{label} {seed}").gauss(0, noise)
    study.losses[label, seed] = 6.0 - 0.0017 * steps + effect + shared + own
    tokens = steps * TOKENS_PER_STEP
    study.changes[label, seed] = {
        "steps": steps,
        "tokens": tokens,
        "flops_per_token": FLOPS_PER_TOKEN,
        "train_flops": FLOPS_PER_TOKEN * tokens,
        "parameters": {"total": 639840, "non_embedding": 443136},
    }
