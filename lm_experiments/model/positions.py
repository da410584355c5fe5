"""Position encodings: what they add to embeddings, how they turn queries and keys, what they bias.

A position encoding has three hooks with do-nothing defaults, so each one overrides only what it
does. Positions are an input: nothing here assumes that a sequence starts at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .registry import NoOptions, register


@dataclass(frozen=True)
class PositionSizes:
    """The sizes a position encoding is built from."""

    d_model: int
    n_heads: int
    head_width: int
    context_length: int


class Position(nn.Module):
    """Base of all position encodings, built with (options, sizes); it does nothing itself."""

    def __init__(self, options: Any, sizes: PositionSizes) -> None:
        super().__init__()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Change the token embeddings ``x`` (batch, length, d_model) at ``positions`` (length,)."""
        return x

    def phases(self, positions: Tensor) -> Tensor | None:
        """Return what `rotate` needs at ``positions`` (length,), computed once for all layers."""
        return None

    def rotate(self, x: Tensor, phases: Tensor | None) -> Tensor:
        """Turn queries or keys ``x`` (batch, heads, length, head_width)."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return what is added to the scores (heads, queries, keys), for two sets of positions."""
        return None


class Float32Table(Position):
    """A position encoding that keeps a fixed table of float32 values.

    The table is not a parameter and not in checkpoints. Casting the model to a narrower type
    must not cast it: in bfloat16, position 257 does not exist. So it follows the model's device
    and keeps its type.
    """

    table: Tensor

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Float32Table:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved = fn(self.table.new_empty(0))
        if moved.device != self.table.device:
            self.table = self._build_table(moved.device)
        return self


@register("position", "none")
class NoPosition(Position):
    """No position encoding: order shows through the causal mask alone (Haviv et al. 2022)."""


@register("position", "sinusoidal")
class Sinusoidal(Float32Table):
    """Add fixed sines and cosines of geometric wavelengths to embeddings (Vaswani et al. 2017).

    Column 2i is ``sin(p / 10000^(2i/d))``, column 2i+1 its cosine; an odd width drops the last.
    """

    def __init__(self, options: NoOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        self.shape = (sizes.context_length, sizes.d_model)
        self.table = self._build_table()

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        length, width = self.shape
        angles = _angles(length, (width + 1) // 2, width, 10000.0)
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1)
        return waves.flatten(1)[:, :width].float().to(device)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the table's rows at ``positions``."""
        return x + self.table[positions].to(x.dtype)


@register("position", "learned")
class Learned(Position):
    """Add a trained vector for each position up to the context length (Radford et al. 2018)."""

    def __init__(self, options: NoOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        self.weight = nn.Parameter(torch.empty(sizes.context_length, sizes.d_model))

    def reset_parameters(self) -> None:
        """Draw from N(0, 0.02), as GPT-2 does, whatever the init scheme of the other weights."""
        nn.init.normal_(self.weight, std=0.02)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the vectors of ``positions``."""
        return x + self.weight[positions].to(x.dtype)


@dataclass(frozen=True)
class RoPEOptions:
    """Options of RoPE.

    ``theta`` is the base of the wavelengths. ``pairing`` says which columns turn together:
    ``interleaved`` (2k with 2k+1) or ``half`` (k with k + width/2, as in Llama's weights).
    """

    theta: float = 10000.0
    pairing: str = "interleaved"


@register("position", "rope", RoPEOptions)
class RoPE(Float32Table):
    """Turn pairs of query and key columns by angles growing with position (Su et al. 2021).

    Pair k at position m turns by ``m * theta^(-2k / head_width)``. Angles are float32 always.
    """

    PAIRINGS = ("interleaved", "half")

    def __init__(self, options: RoPEOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        if sizes.head_width % 2:
            raise ValueError(
                f"position=rope turns pairs of columns, but the head width model.d_model / "
                f"model.n_heads = {sizes.d_model} / {sizes.n_heads} = {sizes.head_width} is odd; "
                "choose sizes that make it even, or another position."
            )
        if options.pairing not in self.PAIRINGS:
            raise ValueError(
                f"model.position.pairing={options.pairing} is not known; "
                f"it can be {' or '.join(self.PAIRINGS)}."
            )
        if options.theta <= 0:
            raise ValueError(
                f"model.position.theta={options.theta:g} must be positive, for example 10000."
            )
        self.options = options
        self.shape = (sizes.context_length, sizes.head_width)
        self.table = self._build_table()

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        length, width = self.shape
        angles = _angles(length, width // 2, width, self.options.theta)
        return torch.stack((angles.cos(), angles.sin())).float().to(device)

    def phases(self, positions: Tensor) -> Tensor:
        """Return cosines and sines at ``positions``: (2, length, head_width / 2), float32."""
        return self.table[:, positions]

    def rotate(self, x: Tensor, phases: Tensor | None) -> Tensor:
        """Turn ``x`` (batch, heads, length, head_width); the result is cast back once."""
        assert phases is not None
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


def _angles(length: int, pairs: int, width: int, theta: float) -> Tensor:
    """Return the angles (length, pairs) in float64, of which tables are rounded only once."""
    exponents = torch.arange(pairs, dtype=torch.float64) * (-2.0 / width)
    frequencies = torch.pow(torch.tensor(theta, dtype=torch.float64), exponents)
    return torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
