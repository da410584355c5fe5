"""The one linear layer of the model; it knows its role, by which it is initialised."""

from __future__ import annotations

from torch import nn

ROLES = ("hidden", "residual", "head")


class Linear(nn.Linear):
    """``y = x W^T`` with ``W`` of shape (out, in); no bias unless asked for.

    Attributes:
        role: ``hidden`` inside a sublayer, ``residual`` where a sublayer writes back to the
            residual stream, ``head`` for the output head.
    """

    def __init__(
        self, in_features: int, out_features: int, *, role: str = "hidden", bias: bool = False
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        if role not in ROLES:
            raise ValueError(f"role={role!r} is not a role of a linear layer; allowed: {ROLES}.")
        self.role = role
