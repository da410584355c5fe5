"""Ablations of language-model architecture that can be believed."""

__version__ = "0.1.0"
