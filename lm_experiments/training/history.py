"""What a run has seen: first and last losses, the newest validation, and time spent training."""

from __future__ import annotations

import math
import time
from typing import Any

# A logged training loss this many nats above the lowest before it is in a spike.
SPIKE = 1.0


class History:
    """What a run has seen so far, as far as its result needs it, and its training clock."""

    def __init__(self) -> None:
        self.initial_loss: float | None = None
        self.best_train_loss = math.inf
        self.best_validation_loss = math.inf
        self.best_step: int | None = None
        self.spike_step: int | None = None
        self.spikes = 0
        self.in_spike = False
        self.bad_step: int | None = None
        self.first_gradient_norm: float | None = None
        self.newest: dict[str, float] = {}
        self.curve: dict[str, float] = {}
        self.curve_tokens = 0
        self.validation: dict[str, float] = {}
        self.validation_tokens = 0
        self.average: dict[str, float] = {}
        self.validated_step = -1
        self.test: dict[str, float] = {}
        self.test_tokens: int | None = None
        self.seconds = 0.0
        self._batch_tokens = 0
        self._marks = (0.0, 0)
        self.last_step = 0
        self._started: float | None = None

    def start(self, step: int, batch_tokens: int) -> None:
        """Start the training clock at ``step``."""
        self._batch_tokens = batch_tokens
        self.last_step = step
        self._marks = (self.seconds, step)
        self.resume()

    def resume(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock."""
        if self._started is not None:
            self.seconds += time.perf_counter() - self._started
            self._started = None

    @property
    def tokens_per_second(self) -> float | None:
        """Training tokens per second of training, validation not counted."""
        return self.last_step * self._batch_tokens / self.seconds if self.seconds > 0 else None

    def row(self, step: int, loss: float, norm: float, rate: float) -> dict[str, float]:
        """Return the row of training metrics at ``step``; the device has been waited for."""
        self.pause()
        self.resume()
        self.last_step = step
        before, marked = self._marks
        speed = (step - marked) * self._batch_tokens / max(self.seconds - before, 1e-9)
        self._marks = (self.seconds, step)
        self._notice(step, loss, norm)
        self.newest = {
            "train/loss": loss,
            "train/learning_rate": rate,
            "train/gradient_norm": norm,
            "train/tokens_per_second": speed,
        }
        return dict(self.newest)

    def _notice(self, step: int, loss: float, norm: float) -> None:
        if step == 1:
            self.initial_loss, self.first_gradient_norm = loss, norm
        if self.bad_step is None and not (math.isfinite(loss) and math.isfinite(norm)):
            self.bad_step = step
        was_in_spike, self.in_spike = self.in_spike, loss > self.best_train_loss + SPIKE
        if self.in_spike and not was_in_spike:
            self.spikes += 1
            self.spike_step = self.spike_step or step
        self.best_train_loss = min(self.best_train_loss, loss)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, as plain types."""
        self.pause()
        self.resume()
        kept = vars(self).items()
        return {key: value for key, value in kept if key != "newest" and not key.startswith("_")}

    def load(self, state: dict[str, Any]) -> None:
        """Take up the state of a checkpoint; what is not known here is left."""
        vars(self).update({key: value for key, value in state.items() if key in vars(self)})

    def validated(self, step: int, row: dict[str, float], tokens: int) -> None:
        """Remember the newest point of the curve."""
        self.validated_step = step
        self.curve, self.curve_tokens = row, tokens
        if row["val/loss"] < self.best_validation_loss:
            self.best_validation_loss, self.best_step = row["val/loss"], step

    def measured(self, row: dict[str, float], tokens: int) -> None:
        """Remember the newest pass over the whole validation set."""
        self.validation, self.validation_tokens = row, tokens
