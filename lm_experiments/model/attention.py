"""Self-attention: which heads share keys, how scores are made, and how far a query sees."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lm_experiments.model.backends import Scope, attend
from lm_experiments.model.cache import LayerCache
from lm_experiments.model.linear import Linear
from lm_experiments.registry import build, choose, register

QK_NORMS = ("none", "rmsnorm", "layernorm", "l2")
QK_NORM_WIDTHS = ("head", "model")


@dataclass(frozen=True)
class AttentionSizes:
    """What attention is built from.

    Attributes:
        bias: gives its projections biases, where its options leave that open.
        local: whether its window, where it has one, is in force in this layer.
        scale: multiplies the scale of the scores, where an init scheme asks for that.
    """

    d_model: int
    n_heads: int
    head_width: int
    context_length: int
    bias: bool = False
    local: bool = True
    scale: float = 1.0


class Attention(nn.Module):
    """Base of all attentions: built with (options, sizes), maps (batch, length, d_model) to itself.

    The position encoding is not part of attention: the scope of each call holds it.

    Attributes:
        window: how many positions a query sees, itself included; None for all before it.
        softcap: the cap of the scores, None for none.
    """

    window: int | None = None
    softcap: float | None = None

    def forward(self, x: Tensor, scope: Scope, cache: LayerCache | None = None) -> Tensor:
        """Mix each position of ``x`` with those before it that are in ``scope``."""
        raise NotImplementedError

    def flops(self, length: int) -> int:
        """Return the forward FLOPs of the scores and the mixing, for one full square sequence."""
        raise NotImplementedError


@dataclass(frozen=True)
class AttentionOptions:
    """Options of attention.

    Attributes:
        kv_heads: the number of heads of keys and values; null leaves it to the kind of attention.
        qk_norm: the norm of queries and keys before they are rotated: none, rmsnorm, layernorm, or
            l2, which makes them unit vectors and learns the scale of their products, one for the
            layer (Henry et al. 2020).
        qk_norm_width: what one norm spans: a head, or all heads together (model, as in OLMo 2).
        qk_norm_eps: the eps of that norm.
        window: how many positions a query sees, itself included; null leaves it to the kind.
        softcap: bounds scores to ``cap * tanh(scores / cap)``; null leaves them.
        scale: multiplies the products; null for 1 / sqrt(head width), or 1 with l2.
        bias: whether the four projections have biases; null for model.bias.
    """

    kv_heads: int | None = None
    qk_norm: str = "none"
    qk_norm_width: str = "head"
    qk_norm_eps: float = 1e-5
    window: int | None = None
    softcap: float | None = None
    scale: float | None = None
    bias: bool | None = None

    def __post_init__(self) -> None:
        _one_of("qk_norm", self.qk_norm, QK_NORMS)
        _one_of("qk_norm_width", self.qk_norm_width, QK_NORM_WIDTHS)
        for name in ("kv_heads", "window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"model.attention.{name}={value} must be at least 1, or null.")
        for name in ("softcap", "scale"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"model.attention.{name}={value:g} must be positive, or null.")
        self._check_qk_norm()

    def _check_qk_norm(self) -> None:
        if self.qk_norm_eps <= 0:
            raise ValueError(
                f"model.attention.qk_norm_eps={self.qk_norm_eps:g} must be positive, for example "
                "1e-5."
            )
        if self.qk_norm_width != "head" and self.qk_norm in ("none", "l2"):
            raise ValueError(
                f"model.attention.qk_norm_width={self.qk_norm_width} does nothing with "
                f"qk_norm={self.qk_norm}; type model.attention.qk_norm=rmsnorm or layernorm."
            )
        if self.qk_norm_eps != 1e-5 and self.qk_norm in ("none", "l2"):
            raise ValueError(
                f"model.attention.qk_norm_eps={self.qk_norm_eps:g} does nothing with "
                f"qk_norm={self.qk_norm}; type model.attention.qk_norm=rmsnorm or layernorm."
            )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(
            f"model.attention.{name}={value} is not known; it can be {', '.join(allowed)}."
        )


@register("attention", "causal", AttentionOptions)
class CausalAttention(Attention):
    """Multi-head attention over this and all earlier positions (Vaswani et al. 2017)."""

    def __init__(self, options: AttentionOptions, sizes: AttentionSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.kv_heads = self._kv_heads(options)
        self.window = self._window(options) if sizes.local else None
        self.softcap = options.softcap
        self.scale = _scale(options, sizes)
        bias = sizes.bias if options.bias is None else options.bias
        inner, narrow = sizes.n_heads * sizes.head_width, self.kv_heads * sizes.head_width
        self.query = Linear(sizes.d_model, inner, role="query", bias=bias)
        self.key = Linear(sizes.d_model, narrow, role="key", bias=bias)
        self.value = Linear(sizes.d_model, narrow, role="value", bias=bias)
        self.out = Linear(inner, sizes.d_model, role="out", bias=bias)
        self.qk_norm_width = options.qk_norm_width
        self.query_norm = self._qk_norm(options, inner)
        self.key_norm = self._qk_norm(options, narrow, keys=True)

    def forward(self, x: Tensor, scope: Scope, cache: LayerCache | None = None) -> Tensor:
        """Mix each position of ``x`` with those before it that are in ``scope``."""
        query = self._heads(self.query(x), self.query_norm)
        key = self._heads(self.key(x), self.key_norm)
        query = scope.position.rotate(query, scope.phases)
        key = scope.position.rotate(key, scope.phases)
        value = self._heads(self.value(x), None)
        if cache is not None:
            key, value = cache.extend(key, value)
        mixed = attend(query, key, value, scope, self.scale, self.softcap)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def flops(self, length: int) -> int:
        """Return the forward FLOPs of the scores and the mixing, for one full square sequence.

        A window does not make them fewer: by convention the full square is counted.
        """
        return 4 * length * length * self.sizes.n_heads * self.sizes.head_width

    def _heads(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """Return (batch, heads, length, head_width), normalised where there is a norm."""
        batch, length, _ = x.shape
        if norm is not None and self.qk_norm_width == "model":
            x = norm(x)
        x = x.view(batch, length, -1, self.sizes.head_width)
        if norm is not None and self.qk_norm_width == "head":
            x = norm(x)
        return x.transpose(1, 2)

    def _default_kv_heads(self) -> int:
        return self.sizes.n_heads

    def _kv_heads(self, options: AttentionOptions) -> int:
        heads = self.sizes.n_heads
        kv_heads = options.kv_heads or self._default_kv_heads()
        if heads % kv_heads:
            divisors = [str(n) for n in range(1, heads + 1) if heads % n == 0]
            raise ValueError(
                f"model.attention.kv_heads={kv_heads} does not divide model.n_heads={heads}; it "
                f"can be {', '.join(divisors)}."
            )
        return kv_heads

    def _window(self, options: AttentionOptions) -> int | None:
        if options.window is not None and options.window > self.sizes.context_length:
            raise ValueError(
                f"model.attention.window={options.window} is larger than "
                f"model.context_length={self.sizes.context_length} and would do nothing; type "
                "model.attention.window=null, or a longer context."
            )
        return options.window

    def _qk_norm(
        self, options: AttentionOptions, projected: int, keys: bool = False
    ) -> nn.Module | None:
        if options.qk_norm == "none":
            return None
        if options.qk_norm == "l2":
            return UnitVectors() if keys else UnitVectors(self.sizes.context_length)
        width = self.sizes.head_width if options.qk_norm_width == "head" else projected
        choice = choose("norm", options.qk_norm, {"eps": options.qk_norm_eps})
        norm: nn.Module = build("norm", choice, width)
        return norm


@register("attention", "grouped", AttentionOptions)
class GroupedAttention(CausalAttention):
    """Heads in groups of four or more share their keys and values (Ainslie et al. 2023)."""

    def _default_kv_heads(self) -> int:
        heads = self.sizes.n_heads
        return max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or 4 * n <= heads))


@register("attention", "multi_query", AttentionOptions)
class MultiQueryAttention(CausalAttention):
    """All heads share one head of keys and values (Shazeer 2019)."""

    def _default_kv_heads(self) -> int:
        return 1

    def _kv_heads(self, options: AttentionOptions) -> int:
        if options.kv_heads not in (None, 1):
            raise ValueError(
                f"model.attention.kv_heads={options.kv_heads} is not what attention=multi_query "
                f"is; type attention=grouped model.attention.kv_heads={options.kv_heads}."
            )
        return super()._kv_heads(options)


@register("attention", "sliding", AttentionOptions)
class SlidingAttention(CausalAttention):
    """A query sees the last positions only, a quarter of the context (Beltagy et al. 2020)."""

    def _window(self, options: AttentionOptions) -> int | None:
        window = super()._window(options)
        return max(1, self.sizes.context_length // 4) if window is None else window


class UnitVectors(nn.Module):
    """Scale the last dimension to length 1, and for queries times a learned number (Henry 2020).

    The number starts at ``log2(L^2 - L)`` for contexts of L tokens, which the paper found to let a
    head attend to one position alone.
    """

    def __init__(self, context_length: int | None = None) -> None:
        super().__init__()
        self.context_length = context_length
        self.weight = None if context_length is None else nn.Parameter(torch.empty(1))

    def reset_parameters(self) -> None:
        """Set the number to its start."""
        if self.weight is not None and self.context_length is not None:
            length = max(2, self.context_length)
            nn.init.constant_(self.weight, math.log2(length * length - length))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x`` in float32; the result is cast once."""
        unit = nn.functional.normalize(x.float(), dim=-1)
        if self.weight is not None:
            unit = unit * self.weight.float()
        return unit.to(x.dtype)


def _scale(options: AttentionOptions, sizes: AttentionSizes) -> float | None:
    """Return what scores are multiplied by, None for 1 / sqrt(head width)."""
    if options.qk_norm == "l2":
        # Products of unit vectors do not grow with the width, so that muP asks nothing of them.
        return 1.0 if options.scale is None else options.scale
    if options.scale is not None:
        return options.scale * sizes.scale
    return None if sizes.scale == 1 else sizes.scale / math.sqrt(sizes.head_width)
