"""How a table and its pictures are set; nothing of it changes what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lm_experiments.errors import InputError
from lm_experiments.rundir.results import FLOPS as FLOPS
from lm_experiments.rundir.results import SECONDS as SECONDS
from lm_experiments.rundir.results import STEPS as STEPS
from lm_experiments.rundir.results import TOKENS as TOKENS

# Decimals of a loss in a table.
DIGITS, MOST_DIGITS = 4, 8
# What validation curves can be drawn against, and what the axis is called.
AXES = {
    STEPS: "step (optimizer updates)",
    TOKENS: "training tokens",
    FLOPS: "training FLOPs",
    SECONDS: "seconds of training",
}


@dataclass(frozen=True)
class Style:
    """What is asked of the writers.

    Attributes:
        against: one of `AXES`; None takes tokens where steps differ in size, else steps.
        paper: whether pictures are written as PDF and SVG too, as wide as a page.
        columns: the titles of the columns of the printed and the LaTeX table, in order; None for
            the usual ones. ``diagnostics/STATISTIC`` is the largest over the model's parts in the
            last row of ``diagnostics.jsonl``, ``diagnostics/STATISTIC/PART`` that of one part.
        digits: decimals of losses and differences in LaTeX.
        caption: of the LaTeX table, as LaTeX; None for how complete it is and what it measures.
        label: of the LaTeX table; None for ``tab:`` and the sweep's name.
        notes: whether notes stand under the LaTeX table.
        arm_labels: what LaTeX calls an arm, as LaTeX.
    """

    against: str | None = None
    paper: bool = False
    columns: tuple[str, ...] | None = None
    digits: int = DIGITS
    caption: str | None = None
    label: str | None = None
    notes: bool = True
    arm_labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.against is not None and self.against not in AXES:
            raise InputError(f"--against {self.against} is not known; it can be {', '.join(AXES)}.")
        if not 0 < self.digits <= MOST_DIGITS:
            raise InputError(f"--digits {self.digits} must be 1 to {MOST_DIGITS}.")


USUAL = Style()
