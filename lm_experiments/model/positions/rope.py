"""Rotary position embeddings (RoPE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lm_experiments.model.checks import check_choice, check_positive
from lm_experiments.model.positions.base import PositionSizes, PositionTable
from lm_experiments.model.positions.scaling import (
    SCALINGS,
    angles,
    scaled_frequencies,
    scaling_options,
    yarn_magnitude,
)
from lm_experiments.registry import register


@dataclass(frozen=True)
class RoPEOptions:
    """Options of RoPE.

    Attributes:
        theta: the base of the wavelengths.
        pairing: which columns rotate together: ``interleaved`` (2k with 2k+1) or ``half`` (k with
            k + width/2, as in Llama's weights).
        fraction: the fraction of each head's columns that rotates, from the first on (0.25 in
            GPT-NeoX); the wavelengths are those of the rotated columns.
        scaling: the scaling for contexts longer than trained: ``none``, ``linear`` (Chen et al.
            2023), ``ntk`` (a larger theta), ``yarn`` (Peng et al. 2023, with its attention
            temperature), ``llama3`` (Llama 3.1).
        factor: the factor by which the lowest frequency is divided.
        original_context: the context length before the scaling; for ``yarn`` and ``llama3``.
        low_freq_factor: for ``llama3``: pairs with at most this many rotations in the original
            context are scaled in full; null for 1.
        high_freq_factor: for ``llama3``: pairs with at least this many are not; null for 4.
        beta_fast: for ``yarn``: pairs with at least this many rotations in the original context
            are not scaled; null for 32.
        beta_slow: for ``yarn``: pairs with at most this many are scaled in full; null for 1.
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

    PAIRINGS: ClassVar = ("interleaved", "half")

    def __post_init__(self) -> None:
        check_choice("model.position.pairing", self.pairing, self.PAIRINGS)
        check_positive("model.position.theta", self.theta, "for example 10000")
        if not 0 < self.fraction <= 1:
            raise ValueError(
                f"model.position.fraction={self.fraction:g} must be above 0 and at most 1; "
                "1 rotates all columns."
            )


@register("position", "rope", RoPEOptions)
class RoPE(PositionTable):
    """Rotate pairs of query and key columns by angles that grow with position (Su et al. 2021).

    Pair k at position m rotates by ``m * theta^(-2k / columns)``, before scaling. Always computed
    in float32.

    Raises:
        ValueError: for options that are not possible.
    """

    def __init__(self, options: RoPEOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        self.options = options
        self.length = sizes.context_length
        self.columns = rotated_columns(options.fraction, sizes.head_width)
        self.table = self._build_table()

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        o = self.options
        given = {name: getattr(o, name) for kind in SCALINGS for name in scaling_options(kind)}
        radians = angles(self.length, scaled_frequencies(o.scaling, given, self.columns, o.theta))
        waves = torch.stack((radians.cos(), radians.sin()))
        if o.scaling == "yarn":
            assert o.factor is not None
            waves *= yarn_magnitude(o.factor)
        return waves.float().to(device)

    def phases(self, positions: Tensor) -> Tensor:
        """Return cosines and sines at ``positions`` in float32.

        Shape (2, length, columns / 2), or (2, batch, 1, length, columns / 2) for batched positions.
        """
        phases = self.table[:, positions]
        return phases if positions.dim() == 1 else phases.unsqueeze(2)

    def rotate(self, x: Tensor, phases: Tensor | None) -> Tensor:
        """Rotate ``x`` (batch, heads, length, head_width); the result is cast back once."""
        assert phases is not None
        if self.columns == x.shape[-1]:
            return self._rotate_all(x, phases)
        rotated = self._rotate_all(x[..., : self.columns].contiguous(), phases)
        return torch.cat((rotated, x[..., self.columns :]), dim=-1)

    def _rotate_all(self, x: Tensor, phases: Tensor) -> Tensor:
        cos, sin = phases
        eager_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if self.options.pairing == "interleaved" and eager_cpu:
            # Bit-equal to the general code below, and faster on a CPU than strided halves.
            numbers = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
            rotated = torch.view_as_real(numbers * torch.complex(cos, sin))
            return rotated.flatten(-2).to(x.dtype)
        pair_dim = -1 if self.options.pairing == "interleaved" else -2
        pairs = (-1, 2) if pair_dim == -1 else (2, -1)
        a, b = x.float().view(*x.shape[:-1], *pairs).unbind(pair_dim)
        rotated = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=pair_dim)
        return rotated.flatten(-2).to(x.dtype)


def rotated_columns(fraction: float, head_width: int) -> int:
    """Return how many columns of a head rotate; a ValueError unless even and positive."""
    columns = fraction * head_width
    even = 2 * round(columns / 2)
    # Allow for fractions typed with a few digits, such as 0.333.
    if 0 < even <= head_width and abs(columns - even) < 1e-3:
        return even
    nearest = min(max(2, even), head_width // 2 * 2)
    remedy = "choose sizes that make it 2 or more, or another position."
    if nearest:
        remedy = f"type model.position.fraction={nearest / head_width:g}, or choose other sizes."
    raise ValueError(
        f"position=rope rotates pairs of columns, but model.position.fraction={fraction:g} of the "
        f"head width {head_width} is {columns:g}, which is not an even number; {remedy}"
    )
