"""Learning-rate schedules: the factor on the peak rate, a function of the optimizer step alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from lm_experiments.errors import InputError
from lm_experiments.registry import register


@dataclass(frozen=True)
class Schedule:
    """Warm up linearly from 0 to 1, then follow the curve of the subclass to the last step.

    Attributes:
        warmup_steps: the step at which the factor reaches 1; null takes a tenth of the run.
        min_ratio: the factor at the run's last step.
        decay_fraction: the part of the run that the decay at its end takes.
    """

    # Set by `register`.
    name: ClassVar[str]

    warmup_steps: int | None = None

    def __post_init__(self) -> None:
        if self.warmup_steps is not None and self.warmup_steps < 0:
            raise InputError(f"schedule.warmup_steps={self.warmup_steps} must be 0 or more.")
        for key in ("min_ratio", "decay_fraction"):
            if not 0 <= getattr(self, key, 0) <= 1:
                raise InputError(f"schedule.{key}={getattr(self, key)} must be between 0 and 1.")

    def warmup(self, total: int) -> int:
        """Return the number of warm-up steps in a run of ``total`` steps."""
        return math.ceil(total / 10) if self.warmup_steps is None else self.warmup_steps

    def factor(self, step: int, total: int) -> float:
        """Return the factor at ``step``; the run's updates are steps 1 to ``total``.

        Raises:
            InputError: if the warm-up is longer than the run.
        """
        warmup = self.warmup(total)
        if warmup > total:
            raise InputError(
                f"schedule.warmup_steps={warmup} is more than trainer.max_steps={total}; "
                f"type schedule.warmup_steps={math.ceil(total / 10)}."
            )
        if step < warmup:
            return step / warmup
        return self._curve(step, warmup, total)

    def _curve(self, step: int, warmup: int, total: int) -> float:
        raise NotImplementedError


def _progress(step: int, start: int, end: int) -> float:
    return min(1.0, (step - start) / max(1, end - start))


@register("schedule", "cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 to ``min_ratio`` (Loshchilov and Hutter 2017)."""

    min_ratio: float = 0.1

    def _curve(self, step: int, warmup: int, total: int) -> float:
        wave = 0.5 * (1 + math.cos(math.pi * _progress(step, warmup, total)))
        return self.min_ratio + (1 - self.min_ratio) * wave


@register("schedule", "linear")
@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from 1 to ``min_ratio``."""

    min_ratio: float = 0.0

    def _curve(self, step: int, warmup: int, total: int) -> float:
        return 1 - (1 - self.min_ratio) * _progress(step, warmup, total)


@register("schedule", "wsd")
@dataclass(frozen=True)
class WSD(Schedule):
    """Warm up, stay at 1, then a straight line down to ``min_ratio`` (Hu et al. 2024)."""

    min_ratio: float = 0.0
    decay_fraction: float = 0.2

    def _curve(self, step: int, warmup: int, total: int) -> float:
        start = max(warmup, total - round(self.decay_fraction * total))
        return 1 - (1 - self.min_ratio) * max(0.0, _progress(step, start, total))


@register("schedule", "constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """Stay at 1 after the warm-up."""

    def _curve(self, step: int, warmup: int, total: int) -> float:
        return 1.0


@register("schedule", "inverse_sqrt")
@dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """Fall as 1/sqrt(step) after the warm-up (Vaswani et al. 2017)."""

    def _curve(self, step: int, warmup: int, total: int) -> float:
        return math.sqrt(max(1, warmup) / max(1, step))
