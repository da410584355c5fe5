"""A ladder: every arm of a study at three or more sizes or budgets, its rungs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.rundir.parse import build

# What the rungs differ in: steps, the model, or both, with tokens a fixed multiple of parameters.
BUDGET, SIZE, TOKENS_PER_PARAMETER = "budget", "size", "tokens_per_parameter"
KINDS = (BUDGET, SIZE, TOKENS_PER_PARAMETER)
# Where the learning rate of a rung comes from: the same at all, tuned at each, carried by muP.
FIXED, TUNED_EACH, MUP = "fixed", "tuned", "mup"
TRUNK = "The rungs have one trunk: each goes on from where the one below starts to decay"
# Fewer points have no slope to speak of.
FEWEST_RUNGS = 3


@dataclass(frozen=True)
class Rung:
    """One size or budget, with its rows.

    Attributes:
        label: what it is called: 300 steps, or tiny.
        arms: declared arm -> the arm of the study that is it at this rung.
    """

    label: str
    arms: dict[str, str]


@dataclass(frozen=True)
class Ladder:
    """What a study's arms are repeated over, and what they became.

    Attributes:
        by: budget, size, or tokens_per_parameter.
        steps: by budget, trainer.max_steps of each rung, ascending; [] takes a quarter, all and
            four times the steps of the study.
        sizes: by size or tokens_per_parameter, names of conf/size, or label: [override, ...]; {}
            takes one, two and four times the width and the heads of the study's model.
        ratio: by tokens_per_parameter, training tokens for each parameter of a rung's baseline; all
            arms of the rung train on as many.
        trunk: by budget, train the steps that all rungs have in common once: a rung goes on from
            where the one below starts to decay. It needs schedule=wsd, and the warm-up of the
            smallest rung holds at all.
        rungs: the smallest first; empty until the study is expanded.
        baseline: the baseline as declared.
        contrasts: the declared pairs, [arm, reference].
        rate: fixed, tuned or mup: where the learning rate of a rung comes from.
    """

    by: str = BUDGET
    steps: list[int] = field(default_factory=list)
    sizes: dict[str, list[str]] = field(default_factory=dict)
    ratio: float = 20.0
    trunk: bool = False
    rungs: Annotated[list[Rung], Use.DERIVED] = field(default_factory=list)
    baseline: Annotated[str, Use.DERIVED] = ""
    contrasts: Annotated[list[list[str]], Use.DERIVED] = field(default_factory=list)
    rate: Annotated[str, Use.DERIVED] = FIXED

    def __post_init__(self) -> None:
        if self.by not in KINDS:
            raise InputError(
                f"study.ladder.by={self.by} is not known; it can be {', '.join(KINDS)}."
            )
        if self.by == BUDGET and self.sizes:
            raise InputError(
                "study.ladder.sizes goes with study.ladder.by=size or by=tokens_per_parameter; a "
                "ladder by budget has steps: study.ladder.steps=[75,300,1200]."
            )
        if self.by != BUDGET and self.steps:
            raise InputError(
                f"study.ladder.steps={self.steps} goes with study.ladder.by=budget; a ladder by "
                f"{self.by} has sizes: study.ladder.sizes=[tiny,small,gpt2_small]."
            )
        declared = list(self.steps or self.sizes)
        if declared and len(declared) < FEWEST_RUNGS:
            raise InputError(
                f"study.ladder has {len(declared)} rungs, {declared}; {FEWEST_RUNGS} or more are "
                "needed to tell a slope."
            )
        if self.steps != sorted(set(self.steps)) or (self.steps and self.steps[0] < 1):
            raise InputError(
                f"study.ladder.steps={self.steps} must be whole numbers above 0, ascending; type "
                "for example study.ladder.steps=[75,300,1200]."
            )
        if self.trunk and self.by != BUDGET:
            raise InputError(
                "study.ladder.trunk=true goes with study.ladder.by=budget, and not with "
                f"{self.by}, whose rungs are models of unlike sizes."
            )
        if self.ratio <= 0:
            raise InputError(f"study.ladder.ratio={self.ratio:g} must be above 0, for example 20.")

    def rung_of(self, arm: str) -> Rung | None:
        """Return the rung that an arm of the expanded study stands on."""
        return next((rung for rung in self.rungs if arm in rung.arms.values()), None)


def read_ladder(values: Any) -> Ladder | None:
    """Turn plain values into a checked `Ladder`; `InputError` says what is wrong with them."""
    return None if values is None else build(Ladder, values, "study.ladder", {"sizes": _sizes})


def _sizes(values: Any) -> dict[str, list[str]]:
    if isinstance(values, Mapping) and all(isinstance(own, list) for own in values.values()):
        return {str(label): list(map(str, own)) for label, own in values.items()}
    if isinstance(values, list) and all(isinstance(name, str) for name in values):
        return {name: [f"size={name}"] for name in values}
    raise InputError(
        f"study.ladder.sizes={values!r} is neither a list of sizes, [tiny,small,gpt2_small], nor a "
        "section of them: label: [override, ...]."
    )
