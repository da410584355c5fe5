"""Self-attention: multi-head, grouped-query, multi-query and sliding-window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lm_experiments.model.attention_kernels import AttentionContext, attend
from lm_experiments.model.cache import LayerCache
from lm_experiments.model.checks import check_at_least_one, check_choice, check_positive
from lm_experiments.model.positions import PositionSizes
from lm_experiments.model.projection import Projection
from lm_experiments.registry import build, choose, register

QK_NORMS = ("none", "rmsnorm", "layernorm", "l2")
QK_NORM_WIDTHS = ("head", "model")


@dataclass(frozen=True)
class AttentionSizes(PositionSizes):
    """The sizes an attention layer is built from.

    Attributes:
        bias: whether projections have biases, unless the options decide it.
        local: whether the window, if any, applies in this layer.
        scale: a factor on the scale of the scores, set by the init scheme.
    """

    bias: bool = False
    local: bool = True
    scale: float = 1.0


class Attention(nn.Module):
    """Base class of attention layers, built with (options, sizes).

    Maps (batch, length, d_model) to the same shape. The position encoding and the mask come with
    the context of each call.

    Attributes:
        window: how many positions a query attends to, including itself; None for all earlier ones.
        softcap: the cap of the scores, or None.
    """

    window: int | None = None
    softcap: float | None = None

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        """Let each position of ``x`` attend to those that the mask of ``context`` allows."""
        raise NotImplementedError

    def flops(self, length: int) -> int:
        """Return the forward FLOPs of the scores and the weighted sum of values.

        By convention the full square is counted, also with a causal mask or documents; a window
        counts as its share of the pairs that the causal mask allows.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class AttentionOptions:
    """Options of attention.

    Attributes:
        kv_heads: the number of key-value heads; null for the default of the component.
        qk_norm: normalises queries and keys before the rotation: ``none``, ``rmsnorm``,
            ``layernorm``, or ``l2``, which makes them unit vectors with one learned scale for the
            layer (Henry et al. 2020).
        qk_norm_width: what one norm spans: a ``head``, or all heads together (``model``, as in
            OLMo 2).
        qk_norm_eps: the eps of that norm.
        window: how many positions a query attends to, including itself.
        softcap: scores become ``cap * tanh(scores / cap)``.
        scale: multiplies the scores; null for 1 / sqrt(head width), or 1 with l2.
        bias: whether the four projections have biases; null for ``model.bias``.
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
        key = "model.attention."
        check_choice(f"{key}qk_norm", self.qk_norm, QK_NORMS)
        check_choice(f"{key}qk_norm_width", self.qk_norm_width, QK_NORM_WIDTHS)
        for name in ("kv_heads", "window"):
            check_at_least_one(f"{key}{name}", getattr(self, name), optional=True)
        for name in ("softcap", "scale"):
            check_positive(f"{key}{name}", getattr(self, name))
        check_positive(f"{key}qk_norm_eps", self.qk_norm_eps, "for example 1e-5")
        if self.qk_norm in ("rmsnorm", "layernorm"):
            return
        for name, default in (("qk_norm_width", "head"), ("qk_norm_eps", 1e-5)):
            if getattr(self, name) != default:
                raise ValueError(
                    f"{key}{name}={getattr(self, name)} does nothing with qk_norm={self.qk_norm}; "
                    f"type {key}qk_norm=rmsnorm or layernorm."
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
        # The factor on the scores, None for 1 / sqrt(head width).
        self.scale = options.scale
        if options.qk_norm == "l2":
            # Products of unit vectors do not grow with the width, so muP does not scale them.
            self.scale = 1.0 if options.scale is None else options.scale
        elif options.scale is not None:
            self.scale = options.scale * sizes.scale
        elif sizes.scale != 1:
            self.scale = sizes.scale / math.sqrt(sizes.head_width)
        bias = sizes.bias if options.bias is None else options.bias
        inner, narrow = sizes.n_heads * sizes.head_width, self.kv_heads * sizes.head_width
        self.query = Projection(sizes.d_model, inner, role="query", bias=bias)
        self.key = Projection(sizes.d_model, narrow, role="key", bias=bias)
        self.value = Projection(sizes.d_model, narrow, role="value", bias=bias)
        self.out = Projection(inner, sizes.d_model, role="out", bias=bias)
        self.qk_norm_width = options.qk_norm_width
        self.query_norm = self._qk_norm(options, inner)
        self.key_norm = self._qk_norm(options, narrow, keys=True)

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        """Let each position of ``x`` attend to those that the mask of ``context`` allows."""
        query = self._heads(self.query(x), self.query_norm)
        key = self._heads(self.key(x), self.key_norm)
        query = context.position.rotate(query, context.phases)
        key = context.position.rotate(key, context.phases)
        value = self._heads(self.value(x), None)
        if cache is not None:
            key, value = cache.extend(key, value)
        mixed = attend(query, key, value, context, self.scale)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def flops(self, length: int) -> int:
        """Return the forward FLOPs of the scores and the weighted sum."""
        pairs, window = length * length, self.window
        if window is not None and window < length:
            pairs = length * window * (2 * length - window + 1) // (length + 1)
        return 4 * pairs * self.sizes.n_heads * self.sizes.head_width

    def _heads(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """Split ``x`` into heads (batch, heads, length, head_width), and normalise them."""
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
    """Groups of four or more heads share one key-value head (Ainslie et al. 2023)."""

    def _default_kv_heads(self) -> int:
        heads = self.sizes.n_heads
        return max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or 4 * n <= heads))


@register("attention", "multi_query", AttentionOptions)
class MultiQueryAttention(CausalAttention):
    """All heads share one key-value head (Shazeer 2019)."""

    def _default_kv_heads(self) -> int:
        return 1

    def _kv_heads(self, options: AttentionOptions) -> int:
        if options.kv_heads not in (None, 1):
            raise ValueError(
                f"model.attention.kv_heads={options.kv_heads} does not fit attention=multi_query, "
                "which has one key-value head; type attention=grouped "
                f"model.attention.kv_heads={options.kv_heads}."
            )
        return super()._kv_heads(options)


@register("attention", "sliding", AttentionOptions)
class SlidingAttention(CausalAttention):
    """Sliding-window attention, by default over a quarter of the context (Beltagy et al. 2020)."""

    def _window(self, options: AttentionOptions) -> int | None:
        window = super()._window(options)
        return max(1, self.sizes.context_length // 4) if window is None else window


class UnitVectors(nn.Module):
    """Scale the last dimension to length 1, times a learned scale for queries (Henry et al. 2020).

    The scale starts at ``log2(L^2 - L)`` for contexts of L tokens, large enough for a head to
    attend to a single position.
    """

    def __init__(self, context_length: int | None = None) -> None:
        super().__init__()
        self.context_length = context_length
        self.weight = None if context_length is None else nn.Parameter(torch.empty(1))

    def reset_parameters(self) -> None:
        """Set the scale to its initial value."""
        if self.weight is not None and self.context_length is not None:
            length = max(2, self.context_length)
            nn.init.constant_(self.weight, math.log2(length * length - length))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``, computed in float32."""
        unit = nn.functional.normalize(x.float(), dim=-1)
        if self.weight is not None:
            unit = unit * self.weight.float()
        return unit.to(x.dtype)
