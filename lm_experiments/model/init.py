"""Initialisation: schemes, and the keyed randomness that lets arms share their tensors.

Each parameter is drawn from a generator of its own, keyed by (seed, parameter name). Two
architectures with the same seed therefore agree, bit for bit, on every tensor that both have,
whatever else they are made of, and whatever device they run on.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from .linear import RESIDUAL_ROLES, Linear
from .registry import Choice, NoOptions, build, register


def keyed_seed(seed: int, *key: object) -> int:
    """Return a 63-bit seed for (seed, key): equal keys agree, all others are independent."""
    text = "/".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class InitScheme:
    """Base of all schemes, built with (options, n_layers)."""

    def __init__(self, options: NoOptions, n_layers: int) -> None:
        self.n_layers = n_layers

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill the (out, in) weight of a linear layer of this role (`linear.ROLES`)."""
        raise NotImplementedError

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the (vocabulary, width) token embedding."""
        raise NotImplementedError


@register("init", "cs336")
class CS336Init(InitScheme):
    """Truncated normals cut at 3 std: linear variance 2/(in + out), embedding std 1."""

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight with variance 2/(in + out) before the cut."""
        _truncated_normal(weight, math.sqrt(2.0 / sum(weight.shape)), generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding with std 1 before the cut."""
        _truncated_normal(weight, 1.0, generator)


@register("init", "gpt2")
class GPT2Init(InitScheme):
    """Normal with std 0.02; residual outputs 0.02/sqrt(2 n_layers) (Radford et al. 2019)."""

    STD = 0.02

    def linear(self, weight: Tensor, role: str, generator: torch.Generator) -> None:
        """Fill a linear weight; those that write to the residual stream get a smaller std."""
        shrink = math.sqrt(2 * self.n_layers) if role in RESIDUAL_ROLES else 1.0
        nn.init.normal_(weight, std=self.STD / shrink, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill the embedding with std 0.02."""
        nn.init.normal_(weight, std=self.STD, generator=generator)


def initialise(model: nn.Module, choice: Choice, n_layers: int, seed: int) -> None:
    """Fill every parameter of ``model`` in place, each from its own keyed generator.

    Linear layers and embeddings follow the scheme; linear biases are 0. Any other module that
    holds parameters fills them in its ``reset_parameters``, which sees keyed global randomness.

    Raises:
        TypeError: where a module holds parameters but has no ``reset_parameters``.
    """
    scheme: InitScheme = build("init", choice, n_layers)
    done: set[int] = set()
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in done]
        if own:
            _fill(module, name, scheme, seed)
        done.update(map(id, own))


@torch.no_grad()
def _fill(module: nn.Module, name: str, scheme: InitScheme, seed: int) -> None:
    if isinstance(module, nn.Linear):
        role = module.role if isinstance(module, Linear) else "up"
        with _drawn_on_cpu(module.weight) as weight:
            scheme.linear(weight, role, _generator(seed, f"{name}.weight"))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        with _drawn_on_cpu(module.weight) as weight:
            scheme.embedding(weight, _generator(seed, f"{name}.weight"))
    elif callable(reset := getattr(module, "reset_parameters", None)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(keyed_seed(seed, name))
            reset()
    else:
        raise TypeError(
            f"{type(module).__name__} holds parameters of its own but has no reset_parameters(); "
            "add one that fills each of them."
        )


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
