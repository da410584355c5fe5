"""Cross-entropy of a linear head, computed in chunks to save memory.

The logits of a whole batch would be by far the largest tensor. Here they exist for one chunk of
positions at a time. The gradient of a chunk is computed with its loss, so nothing is recomputed.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE_INDEX = -100

# Logits per chunk: on a CPU 8 MiB of them, which fit its cache.
CHUNK_LOGITS = {"cpu": 1 << 21, "cuda": 1 << 27, "mps": 1 << 25}
# Each chunk reads and writes the whole gradient of the head, vocabulary x d_model. By 1,024
# positions its products take some hundred times as long as that.
SHORTEST_CHUNK = 1024
# On a GPU products are faster where rows begin at a multiple of so many elements, as those of
# a vocabulary of 50,257 do not.
ROW_MULTIPLE = {"cuda": 64}


def chunk_length(vocab_size: int, device_type: str) -> int:
    """Return the number of positions of a chunk."""
    return max(SHORTEST_CHUNK, CHUNK_LOGITS.get(device_type, 1 << 25) // vocab_size)


class _SumOfLosses(torch.autograd.Function):
    """Sum of the cross-entropy over positions. The gradient is computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        chunk: int,
        softcap: float | None,
        z_loss: float,
    ) -> Tensor:
        """Return the sum, a float32 scalar; keep its gradients for `backward`."""
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(hidden), chunk):
            part = slice(start, start + chunk)
            logits = _product(hidden[part], weight)
            loss, gradient = _loss_and_gradient(logits, targets[part], softcap, z_loss)
            total += loss
            # Written over the logits where their rows are longer, so that it is as fast to read.
            same_rows = gradient.stride() == logits.stride()
            grad_logits = gradient.to(logits.dtype) if same_rows else logits.copy_(gradient)
            torch.mm(grad_logits, weight, out=grad_hidden[part])
            if grad_weight.dtype == grad_logits.dtype:
                grad_weight.addmm_(grad_logits.T, hidden[part])
            else:
                grad_weight += grad_logits.T @ hidden[part]
        ctx.save_for_backward(grad_hidden, grad_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of ``hidden`` and ``weight``."""
        (grad_output,) = grad_outputs
        # Scale in float32: 1/1020 is off by 0.4 % in bfloat16.
        scaled = [(grad.float() * grad_output).to(grad.dtype) for grad in ctx.saved_tensors]
        return scaled[0], scaled[1], None, None, None, None


def _product(hidden: Tensor, weight: Tensor) -> Tensor:
    """Return the logits, whose rows may lie further apart in memory than they are long."""
    multiple = ROW_MULTIPLE.get(hidden.device.type, 1)
    rows, length = len(hidden), len(weight)
    if length % multiple == 0:
        return hidden @ weight.T
    padded = hidden.new_empty(rows, math.ceil(length / multiple) * multiple)
    return torch.mm(hidden, weight.T, out=padded[:, :length])


def _loss_and_gradient(
    logits: Tensor, targets: Tensor, softcap: float | None, z_loss: float
) -> tuple[Tensor, Tensor]:
    """Return the summed loss of a chunk and its gradient by the logits, float32."""
    capped, slope = _capped(logits, softcap)
    log_probabilities = F.log_softmax(capped, dim=-1, dtype=torch.float32)
    valid = targets != IGNORE_INDEX
    index = targets.clamp_min(0).unsqueeze(1)
    picked = log_probabilities.gather(1, index).squeeze(1)
    loss = -(picked * valid).sum()
    if z_loss:
        # log softmax(x)_i = x_i - log Z, and the gradient of log Z is the softmax.
        log_z = capped.gather(1, index).squeeze(1).float() - picked
        loss += z_loss * (log_z.square() * valid).sum()
    gradient = log_probabilities.exp_()
    if z_loss:
        gradient *= 1 + 2 * z_loss * log_z.unsqueeze(1)
    gradient.scatter_add_(1, index, gradient.new_full(index.shape, -1.0))
    gradient *= valid.unsqueeze(1)
    if slope is not None:
        gradient *= slope
    return loss, gradient


def _capped(logits: Tensor, softcap: float | None) -> tuple[Tensor, Tensor | None]:
    """Return the capped logits (in float32 if there is a cap) and the derivative of the cap."""
    if softcap is None:
        return logits, None
    squashed = torch.tanh(logits.float() / softcap)
    return softcap * squashed, 1 - squashed.square()


def sum_of_losses(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> Tensor:
    """Return the sum over valid targets of ``-log softmax(logits)[target]``, in nats.

    Args:
        hidden: (..., d_model), the input of the head.
        weight: (vocabulary, d_model), the weight of the head; logits are ``hidden W^T``.
        targets: (...), token ids; positions with `IGNORE_INDEX` do not count.
        softcap: logits become ``cap * tanh(logits / cap)`` (Gemma 2); None for no cap.
        z_loss: the weight of the squared log-partition function, summed over valid targets, which
            is added to the loss (Chowdhery et al. 2022).

    Returns:
        A float32 scalar. Without gradients only the loss is computed.
    """
    if torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad):
        hidden, weight = _for_autocast(hidden.flatten(0, -2), weight)
        chunk = chunk_length(len(weight), hidden.device.type)
        arguments = (hidden, weight, targets.flatten(), chunk, softcap, z_loss)
        return cast(Tensor, _SumOfLosses.apply(*arguments))  # type: ignore[no-untyped-call]
    return losses_and_sum(hidden, weight, targets, softcap, z_loss)[1]


def losses_and_sum(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return the loss of each target and their sum as `sum_of_losses`, for evaluation.

    Returns:
        ``-log softmax(logits)[target]`` of each position, float32 of the shape of ``targets``, 0
        where a position does not count; and the sum, to which ``z_loss`` adds.
    """
    hidden, weight = _for_autocast(hidden.flatten(0, -2), weight)
    chunk = chunk_length(len(weight), hidden.device.type)
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    each = []
    ids_of = torch.split(targets.flatten(), chunk)
    for rows, ids in zip(torch.split(hidden, chunk), ids_of, strict=True):
        logits = _capped(rows @ weight.T, softcap)[0].float()
        log_probabilities = F.log_softmax(logits, dim=-1)
        total += F.nll_loss(log_probabilities, ids, ignore_index=IGNORE_INDEX, reduction="sum")
        each.append(F.nll_loss(log_probabilities, ids, ignore_index=IGNORE_INDEX, reduction="none"))
        if z_loss:
            total += z_loss * (logits.logsumexp(-1).square() * (ids != IGNORE_INDEX)).sum()
    return torch.cat(each).view(targets.shape), total


def _for_autocast(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the type that autocast multiplies in."""
    if not torch.is_autocast_enabled(hidden.device.type):
        return hidden, weight
    dtype = torch.get_autocast_dtype(hidden.device.type)
    return hidden.to(dtype), weight.to(dtype)
