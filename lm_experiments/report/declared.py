"""What a study declares beside its runs: arms, contrasts, seeds, matching and tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REPORT, TUNED, TUNE = "report", "tuned", "tune"
ROLES = (REPORT, TUNED, TUNE)


@dataclass(frozen=True)
class Choice:
    """The value an arm's tuning chose; `edge` where it lies at an end of the grid."""

    value: float
    edge: bool


@dataclass(frozen=True)
class Tuning:
    """The key that is tuned for every arm alone; `chosen` is empty until tuning has ended."""

    key: str
    grid: tuple[float, ...]
    seeds: tuple[int, ...]
    trials: int
    chosen: Mapping[str, Choice]


@dataclass(frozen=True)
class Study:
    """A declared sweep: `contrasts` are (arm, reference), `margin` is in the primary's unit."""

    name: str
    baseline: str
    arms: Mapping[str, tuple[str, ...]]
    controls: tuple[str, ...]
    seeds: tuple[int, ...]
    contrasts: tuple[tuple[str, str], ...]
    margin: float | None
    primary: str
    match: str | None
    match_tolerance: float | None
    tuning: Tuning | None
    block: Mapping[str, Any]

    @property
    def cells(self) -> list[tuple[str, int, str]]:
        """The (arm, seed, role) of every run that the finished study reports."""
        tuning = self.tuning
        # Before tuning has ended, every arm that is not a control waits for its tuned runs.
        tuned = tuning.chosen or set(self.arms) - set(self.controls) if tuning else ()
        cells = [(arm, seed, REPORT) for arm in self.arms for seed in self.seeds]
        return [*cells, *((arm, seed, TUNED) for arm in tuned for seed in self.seeds)]

    @property
    def lost(self) -> frozenset[str]:
        """The arms for which tuning has ended without one successful trial."""
        if self.tuning is None or not self.tuning.chosen:
            return frozenset()
        return frozenset(self.arms) - set(self.controls) - set(self.tuning.chosen)


def declared_study(block: Mapping[str, Any]) -> Study:
    """Read the `study` block of `sweep.json`.

    Raises KeyError, TypeError or ValueError where the block lacks or misuses a key.
    """
    arms = {str(arm): tuple(map(str, given)) for arm, given in block["arms"].items()}
    baseline = str(block["baseline"])
    contrasts = tuple((str(arm), str(reference)) for arm, reference in block["contrasts"])
    controls = tuple(map(str, block.get("controls") or ()))
    for arm in (baseline, *controls, *(name for pair in contrasts for name in pair)):
        if arm not in arms:
            raise ValueError(f"an arm {arm!r} that it does not declare")
    margin, tolerance = block.get("margin"), block.get("match_tolerance")
    return Study(
        name=str(block["name"]),
        baseline=baseline,
        arms=arms,
        controls=controls,
        seeds=tuple(map(int, block["seeds"])),
        contrasts=contrasts,
        margin=None if margin is None else float(margin),
        primary=str(block.get("primary") or "val_loss"),
        match=block.get("match"),
        match_tolerance=None if tolerance is None else float(tolerance),
        tuning=_tuning(block["tune"]) if block.get("tune") else None,
        block=block,
    )


def _tuning(block: Mapping[str, Any]) -> Tuning:
    chosen = {
        str(arm): Choice(float(choice["value"]), bool(choice.get("edge")))
        for arm, choice in (block.get("chosen") or {}).items()
        # An arm all of whose trials failed has nothing to choose.
        if choice and choice.get("value") is not None
    }
    grid, seeds = tuple(map(float, block["grid"])), tuple(map(int, block["seeds"]))
    trials = int(block.get("trials") or len(grid) * len(seeds))
    return Tuning(str(block["key"]), grid, seeds, trials, chosen)
