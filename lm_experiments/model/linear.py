"""The one linear layer of the model; it knows its role, by which it is initialised."""

from __future__ import annotations

from torch import nn

# What a linear layer is for. ``out`` and ``down`` write back to the residual stream.
ROLES = ("query", "key", "value", "out", "gate", "up", "down", "head")
RESIDUAL_ROLES = ("out", "down")


class Linear(nn.Linear):
    """``y = x W^T`` with ``W`` of shape (out, in); no bias unless asked for.

    Attributes:
        role: one of `ROLES`; initialisation schemes tell layers apart by it.
    """

    def __init__(
        self, in_features: int, out_features: int, *, role: str, bias: bool = False
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        if role not in ROLES:
            raise ValueError(f"role={role!r} is not a role of a linear layer; allowed: {ROLES}.")
        self.role = role
