"""The linear layer of the model. It knows its role, which decides how it is initialised."""

from __future__ import annotations

from torch import nn

# What a projection computes. ``out`` and ``down`` write to the residual stream.
ROLES = ("query", "key", "value", "out", "gate", "up", "down", "head")
RESIDUAL_ROLES = ("out", "down")


class Projection(nn.Linear):
    """``y = x W^T`` with ``W`` of shape (out, in); no bias by default.

    Attributes:
        role: one of `ROLES`; initialisation schemes read it.
    """

    def __init__(
        self, in_features: int, out_features: int, *, role: str, bias: bool = False
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        if role not in ROLES:
            raise ValueError(f"role={role!r} is not a role of a projection; allowed: {ROLES}.")
        self.role = role
