"""Rotary position embeddings: queries and keys turn by angles that grow with their position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lm_experiments.model.positions.base import PositionSizes, PositionTable
from lm_experiments.model.positions.scaling import angles, scaled_frequencies, yarn_magnitude
from lm_experiments.registry import register


@dataclass(frozen=True)
class RoPEOptions:
    """Options of RoPE.

    Attributes:
        theta: the base of the wavelengths.
        pairing: which columns turn together: ``interleaved`` (2k with 2k+1) or ``half`` (k with
            k + width/2, as in Llama's weights).
        fraction: the part of each head's columns that turns, counted from the first (GPT-NeoX
            has 0.25); the others stay, and the wavelengths are those of the narrower width.
        scaling: how contexts longer than ``original_context`` are reached: ``none``, ``linear``
            (Chen et al. 2023), ``ntk`` (theta grows), ``yarn`` (Peng et al. 2023, with its
            attention temperature), ``llama3`` (Llama 3.1).
        factor: by how much the scaling slows the slowest pair.
        original_context: the context length trained on before.
        low_freq_factor: of ``llama3``: up to so many turns within the original context, a pair
            is slowed in full; null is 1.
        high_freq_factor: of ``llama3``: from so many turns on, it is not; null is 4.
        beta_fast: of ``yarn``: from so many turns on, a pair is not slowed; null is 32.
        beta_slow: of ``yarn``: up to so many turns, it is slowed in full; null is 1.
    """

    theta: float = 10000.0
    pairing: str = "interleaved"
    fraction: float = 1.0
    scaling: str = "none"
    factor: float | None = None
    original_context: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None


# What a scaling may read.
SCALING_OPTIONS = (
    "factor",
    "original_context",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
)


@register("position", "rope", RoPEOptions)
class RoPE(PositionTable):
    """Turn pairs of query and key columns by angles growing with position (Su et al. 2021).

    Pair k at position m turns by ``m * theta^(-2k / columns)``, where the scaling does not change
    that. Angles are float32 always. A ValueError tells of options that are not possible.
    """

    PAIRINGS = ("interleaved", "half")

    def __init__(self, options: RoPEOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        _check(options, self.PAIRINGS)
        self.options = options
        self.length = sizes.context_length
        self.columns = turning_columns(options.fraction, sizes.head_width)
        self.table = self._build_table()

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        o = self.options
        given = {name: getattr(o, name) for name in SCALING_OPTIONS}
        turns = angles(self.length, scaled_frequencies(o.scaling, given, self.columns, o.theta))
        waves = torch.stack((turns.cos(), turns.sin()))
        if o.scaling == "yarn":
            assert o.factor is not None
            waves *= yarn_magnitude(o.factor)
        return waves.float().to(device)

    def phases(self, positions: Tensor) -> Tensor:
        """Return cosines and sines at ``positions``: (2, length, columns / 2), float32.

        Where the positions have a batch: (2, batch, 1, length, columns / 2).
        """
        phases = self.table[:, positions]
        return phases if positions.dim() == 1 else phases.unsqueeze(2)

    def rotate(self, x: Tensor, phases: Tensor | None) -> Tensor:
        """Turn ``x`` (batch, heads, length, head_width); the result is cast back once."""
        assert phases is not None
        if self.columns == x.shape[-1]:
            return self._turn(x, phases)
        turned = self._turn(x[..., : self.columns].contiguous(), phases)
        return torch.cat((turned, x[..., self.columns :]), dim=-1)

    def _turn(self, x: Tensor, phases: Tensor) -> Tensor:
        cos, sin = phases
        eager_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if self.options.pairing == "interleaved" and eager_cpu:
            # The same products and sums in one pass; strided halves are slow on a CPU.
            numbers = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
            turned = torch.view_as_real(numbers * torch.complex(cos, sin))
            return turned.flatten(-2).to(x.dtype)
        pair_dim = -1 if self.options.pairing == "interleaved" else -2
        pairs = (-1, 2) if pair_dim == -1 else (2, -1)
        a, b = x.float().view(*x.shape[:-1], *pairs).unbind(pair_dim)
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=pair_dim)
        return turned.flatten(-2).to(x.dtype)


def turning_columns(fraction: float, head_width: int) -> int:
    """Return how many columns of a head turn; a fraction that leaves no pairs is a ValueError."""
    columns = fraction * head_width
    even = 2 * round(columns / 2)
    # A fraction typed with a few digits may stand for one that has none.
    if 0 < even <= head_width and abs(columns - even) < 1e-3:
        return even
    nearest = min(max(2, even), head_width // 2 * 2)
    remedy = "choose sizes that make it 2 or more, or another position."
    if nearest:
        remedy = f"type model.position.fraction={nearest / head_width:g}, or choose other sizes."
    raise ValueError(
        f"position=rope turns pairs of columns, but model.position.fraction={fraction:g} of the "
        f"head width {head_width} is {columns:g}, which is not an even number of them; {remedy}"
    )


def _check(options: RoPEOptions, pairings: tuple[str, ...]) -> None:
    if options.pairing not in pairings:
        raise ValueError(
            f"model.position.pairing={options.pairing} is not known; "
            f"it can be {' or '.join(pairings)}."
        )
    if not 0 < options.theta < math.inf:
        raise ValueError(
            f"model.position.theta={options.theta:g} must be positive, for example 10000."
        )
    if not 0 < options.fraction <= 1:
        raise ValueError(
            f"model.position.fraction={options.fraction:g} must be above 0 and at most 1; "
            "1 turns all columns."
        )
