"""The one error of this package."""

from __future__ import annotations


class InteropError(ValueError):
    """A model that cannot be taken over; the message says why, and what would be."""
