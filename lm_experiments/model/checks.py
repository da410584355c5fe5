"""Checks of configuration values. Each raises a ValueError that says what to type instead."""

from __future__ import annotations

import math
from collections.abc import Iterable


def check_choice(key: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is not one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{key}={value} is not known; it can be {', '.join(allowed)}.")


def check_at_least_one(key: str, value: int | None, *, optional: bool = False) -> None:
    """Refuse a size below 1; None passes."""
    if value is not None and value < 1:
        raise ValueError(f"{key}={value} must be at least 1{', or null' if optional else ''}.")


def check_positive(key: str, value: float | None, hint: str = "or null") -> None:
    """Refuse a number that is not above 0; None passes. ``hint`` follows the rule."""
    if value is not None and not 0 < value < math.inf:
        raise ValueError(f"{key}={value:g} must be positive, {hint}.")
