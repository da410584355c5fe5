"""Initialisation: schemes, and the keyed randomness that lets arms share their tensors.

Each parameter is drawn from a generator of its own, keyed by (seed, parameter name). Two
architectures with the same seed therefore agree, bit for bit, on every tensor that both have,
whatever else they are made of, and whatever device they run on.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lm_experiments.model.config import ModelConfig
from lm_experiments.model.linear import RESIDUAL_ROLES, Linear
from lm_experiments.registry import build, register


def keyed_seed(seed: int, *key: object) -> int:
    """Return a 63-bit seed for (seed, key): equal keys agree, all others are independent."""
    text = "/".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class InitOptions:
    """Options of a scheme.

    Attributes:
        zero_outputs: whether projections that write to the residual stream start at zero, so that
            each block starts as the identity (as the last layer of each residual branch in Fixup,
            Zhang et al. 2019).
    """

    zero_outputs: bool = False


@dataclass(frozen=True)
class XavierOptions(InitOptions):
    """Options of Xavier.

    Attributes:
        distribution: uniform or normal, of the same variance.
    """

    distribution: str = "uniform"

    DISTRIBUTIONS: ClassVar = ("uniform", "normal")

    def __post_init__(self) -> None:
        if self.distribution not in self.DISTRIBUTIONS:
            raise ValueError(
                f"model.init.distribution={self.distribution} is not known; "
                f"it can be {' or '.join(self.DISTRIBUTIONS)}."
            )


@dataclass(frozen=True)
class MuPOptions(InitOptions):
    """Options of muP: the model whose learning rate holds at every width.

    Attributes:
        base_width: d_model of that model; at this width nothing is scaled.
        base_heads: its number of heads; null for as many as this model has, so that heads grow
            wider with the model.
    """

    base_width: int = 128
    base_heads: int | None = None

    def __post_init__(self) -> None:
        for key in ("base_width", "base_heads"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ValueError(f"model.init.{key}={value} must be at least 1.")


@dataclass(frozen=True)
class Multipliers:
    """What a scheme asks for beyond initial values.

    Attributes:
        attention_scale: what the scale of attention scores, 1/sqrt(head width), is multiplied by.
        logits: what logits are multiplied by.
        hidden_rate: what the learning rate of the matrices inside blocks is multiplied by.
    """

    attention_scale: float = 1.0
    logits: float = 1.0
    hidden_rate: float = 1.0


class InitScheme:
    """Base of all schemes, built with (options, config)."""

    def __init__(self, options: Any, config: ModelConfig) -> None:
        self.config = config

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill the (out, in) weight of a linear layer of this role (`linear.ROLES`)."""
        raise NotImplementedError

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the (vocabulary, width) token embedding."""
        raise NotImplementedError

    def multipliers(self) -> Multipliers:
        """Return what the scheme asks of the model and the optimizer; by default, nothing."""
        return Multipliers()


@register("init", "cs336", InitOptions)
class CS336Init(InitScheme):
    """Truncated normals cut at 3 std: linear variance 2/(in + out), embedding std 1."""

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight with variance 2/(in + out) before the cut."""
        _truncated_normal(weight, math.sqrt(2.0 / sum(weight.shape)), generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding with std 1 before the cut."""
        _truncated_normal(weight, 1.0, generator)


@register("init", "gpt2", InitOptions)
class GPT2Init(InitScheme):
    """Normal with std 0.02; residual outputs 0.02/sqrt(2 n_layers) (Radford et al. 2019)."""

    STD = 0.02

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight; those that write to the residual stream get a smaller std."""
        shrink = math.sqrt(2 * self.config.n_layers) if role in RESIDUAL_ROLES else 1.0
        nn.init.normal_(weight, std=self.STD / shrink, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding with std 0.02."""
        nn.init.normal_(weight, std=self.STD, generator=generator)


@register("init", "xavier", XavierOptions)
class XavierInit(InitScheme):
    """Linear variance 2/(in + out), uniform or normal (Glorot and Bengio 2010).

    The embedding is N(0, 1/d_model), as in Vaswani et al. 2017, who scale it up by sqrt(d_model)
    (``model.scale_embeddings``).
    """

    def __init__(self, options: XavierOptions, config: ModelConfig) -> None:
        super().__init__(options, config)
        self.uniform = options.distribution == "uniform"

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight with variance 2/(in + out)."""
        fill = nn.init.xavier_uniform_ if self.uniform else nn.init.xavier_normal_
        fill(weight, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding with std 1/sqrt(d_model)."""
        nn.init.normal_(weight, std=self.config.d_model**-0.5, generator=generator)


@register("init", "small", InitOptions)
class SmallInit(InitScheme):
    """Normal with std sqrt(2/(5 d_model)), embeddings too (Nguyen and Salazar 2019)."""

    def std(self, role: str) -> float:
        """Return the standard deviation of a linear layer of this role."""
        return math.sqrt(2 / (5 * self.config.d_model))

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight, whatever its shape, by the model's width."""
        nn.init.normal_(weight, std=self.std(role), generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding as the linear weights."""
        nn.init.normal_(weight, std=self.std("embedding"), generator=generator)


@register("init", "wang", InitOptions)
class WangInit(SmallInit):
    """As small, but residual outputs 2/(n_layers sqrt(d_model)) (Wang, Komatsuzaki 2021: GPT-J).

    GPT-NeoX-20B starts from this pair (Black et al. 2022).
    """

    def std(self, role: str) -> float:
        """Return the standard deviation of a linear layer of this role."""
        if role in RESIDUAL_ROLES:
            return 2 / (self.config.n_layers * math.sqrt(self.config.d_model))
        return super().std(role)


@register("init", "scaled", InitOptions)
class ScaledInit(InitScheme):
    """Normal with std 1/sqrt(in), residual outputs over sqrt(2 n_layers), embedding std 1.

    The variances are those of PaLM (Chowdhery et al. 2022), the shrinking of what is written to
    the residual stream that of GPT-2 (Radford et al. 2019).
    """

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight with variance 1/in; residual outputs 1/(2 n_layers in)."""
        shrink = 2 * self.config.n_layers if role in RESIDUAL_ROLES else 1
        nn.init.normal_(weight, std=(weight.shape[1] * shrink) ** -0.5, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding with std 1."""
        nn.init.normal_(weight, generator=generator)


@register("init", "mup", MuPOptions)
class MuPInit(InitScheme):
    """Maximal update parametrisation: a learning rate that holds at every width (Yang et al. 2022).

    The rules are those of their table 8: matrices inside blocks have variance 1/in and a learning
    rate that falls as 1/width; head and embedding have a variance that does not depend on the
    width, and the logits are multiplied by base width over width; attention scores are divided by
    the head width instead of its root. At the base width this is the ordinary parametrisation. The
    rates are for Adam and optimizers whose steps likewise do not grow with the gradient.
    """

    def __init__(self, options: MuPOptions, config: ModelConfig) -> None:
        super().__init__(options, config)
        self.base_width = options.base_width
        self.base_head_width = options.base_width / (options.base_heads or config.n_heads)

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight with variance 1/in; the head with 1/base width."""
        fan_in = self.base_width if role == "head" else weight.shape[1]
        nn.init.normal_(weight, std=fan_in**-0.5, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding with std 1."""
        nn.init.normal_(weight, generator=generator)

    def multipliers(self) -> Multipliers:
        """Return the scales of attention scores, logits and learning rates."""
        shrink = self.base_width / self.config.d_model
        scale = math.sqrt(self.base_head_width / self.config.width_of_head)
        return Multipliers(attention_scale=scale, logits=shrink, hidden_rate=shrink)


# What some placements ask of some layers, whatever the scheme: a factor on the initial weights.
# DeepNorm shrinks values, attention outputs and the feed-forward (Wang et al. 2022, decoder-only).
GAINS: dict[str, tuple[frozenset[str], Callable[[int], float]]] = {
    "deepnorm": (
        frozenset({"value", "out", "gate", "up", "down"}),
        lambda n_layers: (8 * n_layers) ** -0.25,
    ),
}


def multipliers(config: ModelConfig) -> Multipliers:
    """Return what the chosen scheme asks of the model and the optimizer."""
    scheme: InitScheme = build("init", config.init, config)
    return scheme.multipliers()


def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Fill every parameter of ``model`` in place, each from its own keyed generator.

    Linear layers and embeddings follow the scheme; linear biases are 0. Any other module that
    holds parameters fills them in its ``reset_parameters``, which sees keyed global randomness.

    Raises:
        TypeError: where a module holds parameters but has no ``reset_parameters``.
    """
    filler = _Filler(config, seed)
    done: set[int] = set()
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in done]
        if own:
            filler.fill(module, name)
        done.update(map(id, own))


class _Filler:
    """Fills one module at a time, by the scheme and what the placement makes of it."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        self.seed = seed
        self.scheme: InitScheme = build("init", config.init, config)
        self.zeros = RESIDUAL_ROLES if getattr(config.init.options, "zero_outputs", False) else ()
        self.gained, gain = GAINS.get(config.placement.name, (frozenset(), lambda n_layers: 1.0))
        self.gain = gain(config.n_layers)

    @torch.no_grad()
    def fill(self, module: nn.Module, name: str) -> None:
        """Fill what ``module`` holds itself."""
        if isinstance(module, nn.Linear):
            role = module.role if isinstance(module, Linear) else "up"
            with _drawn_on_cpu(module.weight) as weight:
                self._linear(weight, role, f"{name}.weight")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            with _drawn_on_cpu(module.weight) as weight:
                self.scheme.embedding(weight, _generator(self.seed, f"{name}.weight"))
        else:
            _reset(module, keyed_seed(self.seed, name))

    def _linear(self, weight: Tensor, role: str, name: str) -> None:
        if role in self.zeros:
            weight.zero_()
            return
        self.scheme.linear(weight, role, _generator(self.seed, name))
        if role in self.gained:
            weight.mul_(self.gain)


def _reset(module: nn.Module, seed: int) -> None:
    reset = getattr(module, "reset_parameters", None)
    if not callable(reset):
        raise TypeError(
            f"{type(module).__name__} holds parameters of its own but has no reset_parameters(); "
            "add one that fills each of them."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        reset()


class _drawn_on_cpu:
    """Draw on the CPU and copy, so that every device starts from the same values."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.drawn = weight if weight.device.type == "cpu" else torch.empty(weight.shape)

    def __enter__(self) -> Tensor:
        return self.drawn

    def __exit__(self, *exception: object) -> None:
        if self.drawn is not self.weight:
            self.weight.copy_(self.drawn)


def _generator(seed: int, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(keyed_seed(seed, name))


def _truncated_normal(weight: Tensor, std: float, generator: torch.Generator) -> None:
    nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std, generator=generator)
