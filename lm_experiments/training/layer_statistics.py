"""What the parts of a model do: norms of their tensors, their activations, and their attention.

Everything is computed on the model's device and returned as scalar tensors, so that nothing waits
for the device until they are read. Names are those of `rundir.diagnostics`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from lm_experiments.model import Transformer
from lm_experiments.model.attention import CausalAttention
from lm_experiments.model.attention_kernels import AttentionContext
from lm_experiments.rundir.diagnostics import (
    EMBEDDING,
    ENTROPY,
    HEAD,
    LARGEST,
    LOG_Z,
    SCORE,
    STREAM,
)

# Of each sequence, at how many positions attention and logits are computed: the scores of all
# would be a square, and the logits of all as large as a batch's.
POSITIONS = 64

Found = dict[str, Tensor]


def parts_of(model: Transformer) -> dict[str, list[torch.nn.Parameter]]:
    """Return the parameters of the embedding, of each block, and of the head, in that order.

    A tied head has none of its own.
    """
    layers = len(model.blocks)
    parts: dict[str, list[torch.nn.Parameter]] = {
        part: [] for part in (EMBEDDING, *map(str, range(layers)), HEAD)
    }
    for name, parameter in model.named_parameters():
        parts[_part(name)].append(parameter)
    return {part: parameters for part, parameters in parts.items() if parameters}


def _part(name: str) -> str:
    first, _, rest = name.partition(".")
    if first == "blocks":
        return rest.partition(".")[0]
    return HEAD if first in ("head", "final_norm") else EMBEDDING


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """Return the norm of all these tensors together, a float32 scalar."""
    norms = torch._foreach_norm([tensor.float() for tensor in tensors])
    whole: Tensor = torch.linalg.vector_norm(torch.stack(list(norms)))
    return whole


@torch.no_grad()
def look_inside(model: Transformer, tokens: Tensor) -> Found:
    """Return what the model's parts do with ``tokens`` (batch, length), by statistic and part.

    The model is in evaluation mode meanwhile, and runs without its compiled code. No random number
    is drawn.
    """
    found: Found = {}
    with ExitStack() as stack:
        stack.enter_context(looking_inside(model))
        for hook in _hooks(model, found):
            stack.callback(hook.remove)
        hidden = model.hidden(tokens)
        logits = model.logits(hidden[:, spread(hidden.shape[1], hidden.device)])
        found[LOG_Z] = logits.float().logsumexp(-1).mean()
    return found


def spread(length: int, device: torch.device) -> Tensor:
    """Return at most `POSITIONS` positions of a sequence, evenly spread, the last among them."""
    count = min(length, POSITIONS)
    return length - 1 - torch.arange(count, device=device) * length // count


@contextmanager
def looking_inside(model: Transformer) -> Iterator[None]:
    """Set a model in training to evaluation meanwhile, without its compiled code.

    Hooks would break the graphs of that, and other shapes would compile it again.
    """
    training = [module for module in model.modules() if module.training]
    compiled = any(block._compiled_call_impl is not None for block in model.blocks)
    model.eval()
    try:
        # It imports the compiler, which takes seconds.
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        for module in training:
            module.training = True


def _hooks(model: Transformer, found: Found) -> Iterator[Any]:
    """Yield the hooks that write what a forward pass does into ``found``."""

    def _enters(block: Any, inputs: Sequence[Any]) -> None:
        found.update(_stream(inputs[0], EMBEDDING))

    def _leaves(layer: int, block: Any, inputs: Any, output: Tensor) -> None:
        found.update(_stream(output, str(layer)))

    def _attends(layer: int, attention: CausalAttention, inputs: Sequence[Any]) -> None:
        scores = attention_scores(attention, inputs[0], inputs[1])
        found[f"{SCORE}/{layer}"] = scores.amax()
        found[f"{ENTROPY}/{layer}"] = torch.special.entr(scores.softmax(-1)).sum(-1).mean()

    yield model.blocks[0].register_forward_pre_hook(_enters)
    for layer, block in enumerate(model.blocks):
        yield block.register_forward_hook(functools.partial(_leaves, layer))
        if isinstance(block.attention, CausalAttention):
            yield block.attention.register_forward_pre_hook(functools.partial(_attends, layer))


def _stream(x: Tensor, part: str) -> Found:
    x = x.float()
    return {
        f"{STREAM}/{part}": x.square().mean().sqrt(),
        f"{LARGEST}/{part}": x.abs().amax(),
    }


def attention_scores(attention: CausalAttention, x: Tensor, context: AttentionContext) -> Tensor:
    """Return the scores that `attention_kernels.attend` takes the softmax of, for some queries.

    Args:
        attention: the layer.
        x: its input, (batch, length, d_model).
        context: of a forward pass without a key-value cache.

    Returns:
        float32 (batch, heads, queries, length), the queries those of `spread`, -inf for keys that
        are not attended to.
    """
    rotate = functools.partial(context.position.rotate, phases=context.phases)
    query = rotate(attention._heads(attention.query(x), attention.query_norm))
    key = rotate(attention._heads(attention.key(x), attention.key_norm))
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    at = spread(x.shape[1], x.device)
    scale = 1 / math.sqrt(query.shape[-1]) if attention.scale is None else attention.scale
    scores = (query[:, :, at] @ key.transpose(-1, -2)).float() * scale
    if context.softcap is not None:
        scores = context.softcap * torch.tanh(scores / context.softcap)
    if context.bias is not None:
        heads, keys = (torch.arange(n, device=x.device) for n in (scores.shape[1], x.shape[1]))
        scores = scores + context.bias(heads[:, None, None], at[:, None], keys)
    return _masked(scores, context, at)


def _masked(scores: Tensor, context: AttentionContext, at: Tensor) -> Tensor:
    """Return the scores of the queries ``at``, with the mask of a context applied."""
    keys = torch.arange(scores.shape[-1], device=scores.device)
    if context.block_mask is not None:
        batch = torch.arange(len(scores), device=scores.device).view(-1, 1, 1, 1)
        allowed = context.block_mask.mask_mod(batch, batch, at[:, None], keys)
    elif context.causal:
        allowed = keys <= at[:, None]
    elif context.mask is None or context.mask.dtype != torch.bool:
        return scores if context.mask is None else scores + context.mask[..., at, :]
    else:
        allowed = context.mask[..., at, :]
    return scores.masked_fill(~allowed, -torch.inf)


def read(found: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the numbers, to six digits; waits for the device once."""
    values = torch.stack([value.float() for value in found.values()]).tolist()
    return {key: float(f"{value:.6g}") for key, value in zip(found, values, strict=True)}
