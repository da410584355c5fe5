"""What a run had spent when a row was logged: the axes that its losses can be drawn against."""

from __future__ import annotations

from collections.abc import Mapping

# The optimizer step, which is the x axis of every chart unless another is chosen.
X_AXIS = "trainer/global_step"
# Tokens, FLOPs and seconds of training, validation not counted.
AXES = ("tokens", "flops", "seconds")

_SPEED = "train/tokens_per_second"


class Spent:
    """Adds up what a run spends, from its rows in the order in which they were logged.

    Seconds follow from the tokens per second of the training rows, each of which covers the steps
    since the one before; so the rows of a finished run give them again.
    """

    def __init__(self, tokens_per_step: int, flops_per_token: int) -> None:
        self._tokens, self._flops = tokens_per_step, flops_per_token
        self._seconds, self._step = 0.0, 0

    def by(self, step: int, row: Mapping[str, float]) -> dict[str, float]:
        """Return the values of `AXES` at a row."""
        speed = row.get(_SPEED)
        if speed:
            self._seconds += (step - self._step) * self._tokens / float(speed)
            self._step = step
        tokens = step * self._tokens
        return dict(zip(AXES, (tokens, tokens * self._flops, self._seconds), strict=True))
