"""Initialisation schemes, and seeded random generators for each parameter.

Each parameter is drawn on the CPU from its own generator, seeded by (seed, parameter name). Two
architectures with the same seed therefore have bit-equal initial values in every tensor that both
have.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lm_experiments.model.checks import check_at_least_one, check_choice
from lm_experiments.model.config import ModelConfig
from lm_experiments.model.projection import RESIDUAL_ROLES, Projection
from lm_experiments.registry import build, register


def keyed_seed(seed: int, *key: object) -> int:
    """Return a 63-bit seed that depends on (seed, key) alone."""
    text = "/".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class InitOptions:
    """Options of an init scheme.

    Attributes:
        zero_outputs: whether projections that write to the residual stream start at zero, so that
            each block starts as the identity (as in Fixup, Zhang et al. 2019).
    """

    zero_outputs: bool = False


@dataclass(frozen=True)
class XavierOptions(InitOptions):
    """Options of Xavier.

    Attributes:
        distribution: ``uniform`` or ``normal``, with the same variance.
    """

    distribution: str = "uniform"

    def __post_init__(self) -> None:
        check_choice("model.init.distribution", self.distribution, ("uniform", "normal"))


@dataclass(frozen=True)
class MuPOptions(InitOptions):
    """Options of muP: the base model, at which the learning rate was tuned and nothing is scaled.

    Attributes:
        base_width: the d_model of the base model.
        base_heads: its number of heads; null for that of this model, whose heads are then wider.
            Not with ``model.head_width``, which the base model shares.
    """

    base_width: int = 128
    base_heads: int | None = None

    def __post_init__(self) -> None:
        for key in ("base_width", "base_heads"):
            check_at_least_one(f"model.init.{key}", getattr(self, key))


@dataclass(frozen=True)
class Multipliers:
    """Factors that a scheme sets beside the initial values.

    Attributes:
        attention_scale: on the scale of attention scores, 1/sqrt(head width).
        logits: on the logits.
        hidden_rate: on the learning rate of the matrices inside blocks.
    """

    attention_scale: float = 1.0
    logits: float = 1.0
    hidden_rate: float = 1.0


class InitScheme:
    """Base class of init schemes, built with (options, config): normal distributions.

    A scheme defines `std`; one with another distribution overrides `fill`.
    """

    def __init__(self, options: Any, config: ModelConfig) -> None:
        self.options = options
        self.config = config

    def std(self, role: str, weight: Tensor) -> float:
        """Return the standard deviation of a weight.

        Args:
            role: one of `projection.ROLES`, or ``embedding``.
            weight: (out, in), or (vocabulary, d_model) for the token embedding.
        """
        raise NotImplementedError

    def fill(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Initialise a weight in place; see `std` for the arguments."""
        nn.init.normal_(weight, std=self.std(role, weight), generator=generator)

    def multipliers(self) -> Multipliers:
        """Return the factors on scores, logits and learning rates, 1 by default."""
        return Multipliers()

    def _unit_embedding(self, weight: Tensor) -> float:
        """Return 1, or the standard deviation of the head for a table that is the head too."""
        return self.std("head", weight) if self.config.tie_embeddings else 1.0


@register("init", "cs336", InitOptions)
class CS336Init(InitScheme):
    """Truncated normals cut at 3 std: linear variance 2/(in + out), embedding std 1.

    A tied embedding is drawn as a head.
    """

    def std(self, role: str, weight: Tensor) -> float:
        """Return the standard deviation before the cut."""
        if role == "embedding":
            return self._unit_embedding(weight)
        return math.sqrt(2.0 / sum(weight.shape))

    def fill(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Draw from the truncated normal distribution."""
        std = self.std(role, weight)
        nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std, generator=generator)


@register("init", "gpt2", InitOptions)
class GPT2Init(InitScheme):
    """Normal with std 0.02; residual outputs 0.02/sqrt(2 n_layers) (Radford et al. 2019)."""

    STD = 0.02

    def std(self, role: str, weight: Tensor) -> float:
        """Return 0.02, less for projections that write to the residual stream."""
        return self.STD / (math.sqrt(2 * self.config.n_layers) if role in RESIDUAL_ROLES else 1.0)


@register("init", "xavier", XavierOptions)
class XavierInit(InitScheme):
    """Linear variance 2/(in + out), uniform or normal (Glorot and Bengio 2010).

    The embedding is N(0, 1/d_model) as in Vaswani et al. 2017, who multiply it by sqrt(d_model)
    (``model.scale_embeddings``).
    """

    def std(self, role: str, weight: Tensor) -> float:
        """Return the standard deviation of either distribution."""
        if role == "embedding":
            return float(self.config.d_model**-0.5)
        return math.sqrt(2.0 / sum(weight.shape))

    def fill(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Draw from the distribution of the options; the embedding is always normal."""
        if role != "embedding" and self.options.distribution == "uniform":
            nn.init.xavier_uniform_(weight, generator=generator)
        else:
            super().fill(weight, role, generator)


@register("init", "small", InitOptions)
class SmallInit(InitScheme):
    """Normal with std sqrt(2/(5 d_model)), embeddings too (Nguyen and Salazar 2019)."""

    def std(self, role: str, weight: Tensor) -> float:
        """Return a standard deviation that depends on d_model alone."""
        return math.sqrt(2 / (5 * self.config.d_model))


@register("init", "wang", InitOptions)
class WangInit(SmallInit):
    """As small, but residual outputs 2/(n_layers sqrt(d_model)) (Wang, Komatsuzaki 2021: GPT-J).

    GPT-NeoX-20B uses it too (Black et al. 2022).
    """

    def std(self, role: str, weight: Tensor) -> float:
        """Return the standard deviation; another for projections to the residual stream."""
        if role in RESIDUAL_ROLES:
            return 2 / (self.config.n_layers * math.sqrt(self.config.d_model))
        return super().std(role, weight)


@register("init", "scaled", InitOptions)
class ScaledInit(InitScheme):
    """Normal with std 1/sqrt(in), residual outputs over sqrt(2 n_layers), embedding std 1.

    The variances are those of PaLM (Chowdhery et al. 2022); residual outputs are scaled down as in
    GPT-2 (Radford et al. 2019). A tied embedding is drawn as a head.
    """

    def std(self, role: str, weight: Tensor) -> float:
        """Return 1/sqrt(in), 1/sqrt(2 n_layers in) for residual outputs, 1 for the embedding."""
        if role == "embedding":
            return self._unit_embedding(weight)
        shrink = 2 * self.config.n_layers if role in RESIDUAL_ROLES else 1
        return float((weight.shape[1] * shrink) ** -0.5)


@register("init", "mup", MuPOptions)
class MuPInit(InitScheme):
    """Maximal update parametrisation: a learning rate that holds at every width (Yang et al. 2022).

    Follows table 8 of the paper. Matrices inside blocks have variance 1/in and a learning rate
    proportional to 1/width. Head and embedding have a variance independent of the width, and the
    logits are multiplied by base width / width. Attention scores are divided by the head width
    instead of its square root, unless ``model.head_width`` fixes it at every width. At the base
    width nothing changes. A tied embedding is drawn as a head. For Adam and other optimizers whose
    updates do not scale with the gradient.

    Raises:
        ValueError: for ``base_heads`` together with ``model.head_width``.
    """

    def __init__(self, options: MuPOptions, config: ModelConfig) -> None:
        super().__init__(options, config)
        if options.base_heads is not None and config.head_width is not None:
            raise ValueError(
                f"model.init.base_heads={options.base_heads} has no effect with "
                f"model.head_width={config.head_width}, the width of a head at every d_model; type "
                "model.init.base_heads=null, or model.head_width=null."
            )

    def std(self, role: str, weight: Tensor) -> float:
        """Return 1/sqrt(in), 1/sqrt(base width) for the head, 1 for the embedding."""
        if role == "embedding":
            return self._unit_embedding(weight)
        fan_in = self.options.base_width if role == "head" else weight.shape[1]
        return float(fan_in**-0.5)

    def multipliers(self) -> Multipliers:
        """Return the factors on attention scores, logits and learning rates."""
        base_width, config = self.options.base_width, self.config
        base_heads = self.options.base_heads or config.n_heads
        base_head_width = config.head_width or base_width / base_heads
        shrink = base_width / config.d_model
        scale = math.sqrt(base_head_width / config.width_of_head)
        return Multipliers(attention_scale=scale, logits=shrink, hidden_rate=shrink)


# Factors on initial weights that a placement needs with any scheme: the roles, and the factor by
# depth. DeepNorm scales values, attention outputs and feed-forward (Wang et al. 2022).
GAINS: dict[str, tuple[frozenset[str], Callable[[int], float]]] = {
    "deepnorm": (
        frozenset({"value", "out", "gate", "up", "down"}),
        lambda n_layers: (8 * n_layers) ** -0.25,
    ),
}


def multipliers(config: ModelConfig) -> Multipliers:
    """Return the factors of the chosen scheme on scores, logits and learning rates."""
    scheme: InitScheme = build("init", config.init, config)
    return scheme.multipliers()


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Initialise every parameter of ``model`` (on the CPU) in place.

    Linear layers and embeddings follow the scheme; linear biases are 0. Any other module with
    parameters initialises them in its ``reset_parameters``, during which the global generator is
    seeded by (seed, module name).

    Raises:
        TypeError: if a module has parameters but no ``reset_parameters``.
    """
    fill = _filler(config, seed)
    done: set[int] = set()
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in done]
        done.update(map(id, own))
        if not own:
            continue
        if isinstance(module, nn.Linear):
            role = module.role if isinstance(module, Projection) else "up"
            fill(module.weight, role, f"{name}.weight")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            fill(module.weight, "embedding", f"{name}.weight")
        else:
            _reset(module, keyed_seed(seed, name))


def _filler(config: ModelConfig, seed: int) -> Callable[[Tensor, str, str], None]:
    """Return a function that fills a weight, by the scheme and the factors of the placement."""
    scheme: InitScheme = build("init", config.init, config)
    zeros = RESIDUAL_ROLES if getattr(config.init.options, "zero_outputs", False) else ()
    gained, gain = GAINS.get(config.placement.name, (frozenset(), lambda n_layers: 1.0))

    def _fill(weight: Tensor, role: str, name: str) -> None:
        if role in zeros:
            weight.zero_()
            return
        generator = torch.Generator().manual_seed(keyed_seed(seed, name))
        scheme.fill(weight, role, generator)
        if role in gained:
            weight.mul_(gain(config.n_layers))

    return _fill


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
