"""Optimizers, and the rules by which parameters are decayed and get rates of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.model import ModelConfig
from lm_experiments.model.init import multipliers
from lm_experiments.registry import component, names, register

# Where torch has a kernel that updates all parameters at once.
FUSED_DEVICES = ("cpu", "cuda")
DECAYS = ("coupled", "independent")
# The largest share of the weights that a step may take: more is a decay meant for `coupled`.
MOST_INDEPENDENT = 0.01


@dataclass(frozen=True)
class Optimizer:
    """What every optimizer is configured with.

    Attributes:
        lr: the peak learning rate; the schedule scales it.
        weight_decay: the decay of matrices; gains, biases and other vectors have none.
        clip_norm: the largest global gradient norm; 0 turns clipping off.
        decay: what a step at rate ``lr * s`` takes of each matrix, s being the schedule's factor:
            ``coupled``, the share ``lr * s * weight_decay`` (as in PyTorch), or ``independent``,
            ``s * weight_decay``, whatever the peak rate is (Wortsman et al. 2023, who take 1e-4).
    """

    # Set by `register`.
    name: ClassVar[str]
    # Whether the step's size is independent of the gradient's, as muP's learning rates assume.
    scale_invariant: ClassVar[bool] = False
    # Elementwise optimizers; only these support FSDP.
    elementwise: ClassVar[bool] = False
    # Whether the decay is a step of its own and not part of the gradient.
    decoupled: ClassVar[bool] = False

    lr: float = 3e-3
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    decay: Annotated[str, Use.LATER] = "coupled"

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise InputError(f"optimizer.lr={self.lr:g} must be positive, for example 0.003.")
        for key in ("weight_decay", "clip_norm"):
            if getattr(self, key) < 0:
                raise InputError(f"optimizer.{key}={getattr(self, key):g} must be 0 or more.")
        for key in ("beta1", "beta2", "momentum"):
            if not 0 <= getattr(self, key, 0) < 1:
                value = getattr(self, key)
                raise InputError(f"optimizer.{key}={value:g} must be 0 or more, and below 1.")
        for key in ("eps", "adamw_lr_ratio"):
            if getattr(self, key, 1) <= 0:
                raise InputError(f"optimizer.{key}={getattr(self, key):g} must be positive.")
        self._check_decay()

    def _check_decay(self) -> None:
        if self.decay not in DECAYS:
            raise InputError(
                f"optimizer.decay={self.decay} is not known; it can be {' or '.join(DECAYS)}."
            )
        if self.decay == "coupled":
            return
        if not self.decoupled:
            raise InputError(
                f"optimizer.decay={self.decay} is for a decay that is a step of its own, and that "
                f"of optimizer={self.name} is part of the gradient; type optimizer.decay=coupled, "
                f"or one of {', '.join(f'optimizer={n}' for n in optimizers_that('decoupled'))}."
            )
        if self.weight_decay > MOST_INDEPENDENT:
            raise InputError(
                f"optimizer.weight_decay={self.weight_decay:g} with optimizer.decay=independent "
                f"would take {self.weight_decay:.0%} of the weights at each step; type "
                f"optimizer.weight_decay={self.weight_decay * self.lr:.3g}, what "
                f"optimizer.decay=coupled takes at optimizer.lr={self.lr:g}, or at most "
                f"{MOST_INDEPENDENT:g}."
            )

    def per_rate(self, lr: float) -> float:
        """Return the weight decay that torch multiplies by a rate whose peak is ``lr``."""
        return self.weight_decay if self.decay == "coupled" else self.weight_decay / lr

    def at(self, tokens_per_step: int) -> Optimizer:
        """Return the optimizer for steps of that many tokens, where it depends on them."""
        return self

    def check(self, model: ModelConfig) -> None:
        """Refuse a model whose initialisation asks for rates that do not suit this optimizer.

        Raises:
            InputError: naming both.
        """
        if multipliers(model).hidden_rate != 1 and not self.scale_invariant:
            known = optimizers_that("scale_invariant")
            raise InputError(
                f"init={model.init.name} scales learning rates for optimizers like Adam, and "
                f"optimizer={self.name} is none; type optimizer={known[0]}, or another init."
            )

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the torch optimizer over the model's parameters."""
        raise NotImplementedError


def optimizers_that(trait: str) -> list[str]:
    """Return the names of the registered optimizers that have a trait, such as ``elementwise``."""
    known = {name: component("optimizer", name).build for name in names("optimizer")}
    return [name for name, cls in known.items() if getattr(cls, trait)]


@register("optimizer", "adamw")
@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Attributes:
        beta1: the decay of the mean of gradients.
        beta2: the decay of the mean of squared gradients.
        eps: added to the square root of the mean of squared gradients.
        beta2_tokens: the tokens after which a squared gradient counts half in their mean, at any
            batch size: beta2 is ``0.5 ** (tokens of a step / beta2_tokens)`` (Marek et al. 2025).
            null takes ``beta2``.
    """

    scale_invariant: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    decoupled: ClassVar[bool] = True
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    beta2_tokens: Annotated[int | None, Use.LATER] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta2_tokens is None:
            return
        if self.beta2_tokens < 1:
            raise InputError(
                f"optimizer.beta2_tokens={self.beta2_tokens} must be 1 or more, for example 100000."
            )
        if self.beta2 != type(self).beta2:
            raise InputError(
                f"optimizer.beta2={self.beta2:g} is not read beside optimizer.beta2_tokens="
                f"{self.beta2_tokens}, from which it follows; type one of the two."
            )

    def at(self, tokens_per_step: int) -> Optimizer:
        """Return the optimizer with the beta2 of steps of that many tokens."""
        if self.beta2_tokens is None:
            return self
        beta2 = 0.5 ** (tokens_per_step / self.beta2_tokens)
        return replace(self, beta2=beta2, beta2_tokens=None)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return AdamW, with the kernel that updates all parameters at once where there is one."""
        return self._over(parameter_groups(model, self.per_rate(self.lr)))

    def _over(self, groups: list[dict[str, Any]]) -> torch.optim.AdamW:
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(
            groups, lr=self.lr, betas=betas, eps=self.eps, fused=_has_fused_kernels(groups)
        )


@register("optimizer", "muon")
@dataclass(frozen=True)
class Muon(AdamW):
    """Orthogonalised momentum for the matrices inside blocks (Jordan 2024), AdamW for the rest.

    Embeddings, head and vectors are updated by AdamW. On the default run learning rates of 3e-3,
    6e-3 and 1e-2 end at losses of 3.98, 3.85 and 3.79.

    Attributes:
        momentum: Nesterov's, of the matrices inside blocks.
        adjust_lr: ``match_rms_adamw`` scales steps by 0.2 sqrt(max(out, in)), so that AdamW's rate
            and decay can be reused (Liu et al. 2025); ``original`` by sqrt(max(1, out/in)), for
            which Jordan's rate is 0.02.
        adamw_lr_ratio: the learning rate of AdamW, as a fraction of ``lr``.
    """

    scale_invariant: ClassVar[bool] = False
    elementwise: ClassVar[bool] = False
    lr: float = 6e-3
    momentum: float = 0.95
    adjust_lr: str = "match_rms_adamw"
    adamw_lr_ratio: float = 1.0

    ADJUSTMENTS: ClassVar = ("match_rms_adamw", "original")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adjust_lr not in self.ADJUSTMENTS:
            raise InputError(
                f"optimizer.adjust_lr={self.adjust_lr} is not known; "
                f"it can be {' or '.join(self.ADJUSTMENTS)}."
            )

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return both optimizers as one."""
        matrices = hidden_matrices(model)
        muon = torch.optim.Muon(
            [{"params": matrices, "lr_scale": 1.0}],
            lr=self.lr,
            weight_decay=self.per_rate(self.lr),
            momentum=self.momentum,
            adjust_lr_fn=self.adjust_lr,
        )
        taken = set(map(id, matrices))
        lr = self.lr * self.adamw_lr_ratio
        rest = parameter_groups(model, self.per_rate(lr), without=taken)
        for group in rest:
            group["lr_scale"] = self.adamw_lr_ratio
            group["lr"] = lr
        return JointOptimizer([muon, self._over(rest)])


@register("optimizer", "lion")
@dataclass(frozen=True)
class Lion(Optimizer):
    """The sign of a momentum, with decoupled weight decay (Chen et al. 2023).

    Every weight moves by the rate at each step, so the rate should be 3 to 10 times smaller than
    AdamW's, and the decay larger by the same factor. Here it is 3.

    Attributes:
        beta1: the weight of the momentum in the step.
        beta2: the decay of the momentum; 0.98 for language models, with a beta1 of 0.95.
    """

    scale_invariant: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    decoupled: ClassVar[bool] = True
    lr: float = 1e-3
    weight_decay: float = 0.3
    beta1: float = 0.95
    beta2: float = 0.98

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return Lion."""
        groups = parameter_groups(model, self.per_rate(self.lr))
        return SignMomentum(groups, self.lr, (self.beta1, self.beta2))


@register("optimizer", "sgd")
@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum; the decay is part of the gradient.

    No paper has a rate for models like these: on the default run 0.1, 0.3 and 1 end at losses of
    4.47, 3.99 and 3.88.

    Attributes:
        momentum: the decay of the sum of gradients.
        nesterov: whether the momentum is Nesterov's (Sutskever et al. 2013).
    """

    elementwise: ClassVar[bool] = True
    lr: float = 1.0
    weight_decay: float = 0.0
    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise InputError(
                "optimizer.nesterov=true needs a momentum; type optimizer.momentum=0.9."
            )

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return SGD, with the kernel that updates all parameters at once where there is one."""
        groups = parameter_groups(model, self.weight_decay)
        return torch.optim.SGD(
            groups,
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            fused=_has_fused_kernels(groups),
        )


class JointOptimizer(torch.optim.Optimizer):
    """Several optimizers over different parameters, which step together and are saved as one."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step of each part; return what ``closure`` returned."""
        result = None if closure is None else closure()
        start = 0
        for part in self.parts:
            # Loading a checkpoint replaces groups and state; the parts only borrow them.
            count = len(part.param_groups)
            part.param_groups = self.param_groups[start : start + count]
            part.state = self.state
            part.step()
            start += count
        return result


class SignMomentum(torch.optim.Optimizer):
    """The update of Lion: ``w -= lr * (sign(b1 m + (1 - b1) g) + decay * w)``, then m by b2."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step; return what ``closure`` returned."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for group in self.param_groups:
            self._step_group(group)
        return result

    def _step_group(self, group: dict[str, Any]) -> None:
        parameters = [p for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        gradients = [p.grad for p in parameters]
        momenta = [self._momentum(p) for p in parameters]
        beta1, beta2 = group["betas"]
        steps = torch._foreach_lerp(momenta, gradients, 1 - beta1)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, steps, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1 - beta2)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"]
        return momentum


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """Return the weights of all linear layers but the head, whose size follows the vocabulary."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return [layer.weight for layer in layers if getattr(layer, "role", None) != "head"]


def parameter_groups(
    model: nn.Module, weight_decay: float, without: Iterable[int] = ()
) -> list[dict[str, Any]]:
    """Split the parameters: matrices are decayed; gains, biases and other vectors never.

    Each parameter is in exactly one group, a shared one once. The rule is the same in all arms.
    A group's rate is its ``lr_scale`` times the scheduled one. That is 1, except where the
    initialisation asks for another rate inside blocks; what a step decays is then as elsewhere.

    Args:
        model: a `Transformer`, or any module without rates of its own.
        weight_decay: of the matrices.
        without: the ids of parameters that are left out.
    """
    config = getattr(model, "config", None)
    rate = multipliers(config).hidden_rate if isinstance(config, ModelConfig) else 1.0
    parameters = [p for p in model.parameters() if id(p) not in set(without)]
    matrices = [p for p in parameters if p.dim() >= 2]
    hidden = set() if rate == 1 else set(map(id, hidden_matrices(model)))
    groups = [
        _group([p for p in matrices if id(p) not in hidden], weight_decay),
        _group([p for p in matrices if id(p) in hidden], weight_decay / rate, rate),
        _group([p for p in parameters if p.dim() < 2], 0.0),
    ]
    return [group for group in groups if group["params"]]


def _group(
    parameters: list[nn.Parameter], weight_decay: float, lr_scale: float = 1.0
) -> dict[str, Any]:
    return {"params": parameters, "weight_decay": weight_decay, "lr_scale": lr_scale}


def _has_fused_kernels(groups: list[dict[str, Any]]) -> bool:
    return groups[0]["params"][0].device.type in FUSED_DEVICES


def clip_gradients(parameters: Iterable[nn.Parameter], clip_norm: float) -> torch.Tensor:
    """Scale gradients down to the global norm ``clip_norm``; return the norm before clipping."""
    limit = clip_norm if clip_norm > 0 else float("inf")
    return nn.utils.clip_grad_norm_(parameters, limit)
