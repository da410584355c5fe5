"""What two arms that are compared have alike, of what they cost, and what they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# What can be equal, by the names of `Cost`, as it is said.
COSTS: Mapping[str, str] = {
    "tokens": "tokens",
    "ffn": "feed-forward parameters",
    "parameters": "parameters",
    "flops": "FLOPs",
    "seconds": "timed seconds",
}
SIZES: Mapping[str, str] = {"n_layers": "layers", "d_model": "width"}
TOLERANCE = 0.01
# Shares of less are rounding.
EXACT = 5e-5


@dataclass(frozen=True)
class Cost:
    """What an arm is made of and trains on; None where it is not known.

    Attributes:
        tokens: it trains on.
        ffn: parameters of its feed-forwards.
        parameters: of the whole model.
        flops: of its whole training.
        seconds: of training, relative to the baseline's, by steps that were timed before it.
        n_layers: blocks.
        d_model: the width of the residual stream.
        tolerance: the largest share by which it may differ from another and be alike.
        step: the share of a step in its training, half of which no budget can avoid.
    """

    tokens: float | None = None
    ffn: float | None = None
    parameters: float | None = None
    flops: float | None = None
    seconds: float | None = None
    n_layers: int | None = None
    d_model: int | None = None
    tolerance: float = TOLERANCE
    step: float = 0.0


def shares(own: Cost, reference: Cost) -> dict[str, float]:
    """Return by which share an arm's costs differ from its reference's, those that are known."""
    pairs = {name: (getattr(own, name), getattr(reference, name)) for name in COSTS}
    return {name: mine / other - 1 for name, (mine, other) in pairs.items() if mine and other}


def alike(own: Cost, reference: Cost) -> list[str]:
    """Return in which of `COSTS` two arms are alike."""
    found = shares(own, reference)
    return [name for name, share in found.items() if abs(share) <= _allowed(name, own, reference)]


def apart(own: Cost, reference: Cost) -> list[str]:
    """Return in what an arm's costs differ from its reference's, such as "FLOPs -3.1 %"."""
    same = alike(own, reference)
    found = shares(own, reference).items()
    return [f"{COSTS[name]} {_percent(share)}" for name, share in found if name not in same]


def unlike_size(own: Cost, reference: Cost) -> list[str]:
    """Return in what two models are of unlike size: layers, width, or parameters."""
    pairs = {said: (getattr(own, name), getattr(reference, name)) for name, said in SIZES.items()}
    sizes = [f"{a} {said} for {b}" for said, (a, b) in pairs.items() if a and b and a != b]
    share = shares(own, reference).get("parameters", 0.0)
    within = abs(share) <= max(own.tolerance, reference.tolerance)
    return sizes if within else [*sizes, f"parameters {_percent(share)}"]


def caveat(unlike: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the sentence on comparisons of arms of unlike size, nothing where there are none."""
    if not unlike:
        return []
    found = "; ".join(f"{pair} ({', '.join(reasons)})" for pair, reasons in unlike.items())
    return [
        f"Caveat: of unlike size: {found}. Their difference is one of size too; match=total gives "
        "arms equal parameters."
    ]


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _allowed(name: str, own: Cost, reference: Cost) -> float:
    tolerance = max(own.tolerance, reference.tolerance)
    if name in ("ffn", "parameters"):
        return tolerance
    return max(tolerance if name == "flops" else EXACT, own.step / 2, reference.step / 2)
