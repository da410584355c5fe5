"""What a trained model does beyond its training run; `generation.py` continues text with it."""

from .generation import GenerationError, Sampling, next_token_probabilities, sample, stream

__all__ = ["GenerationError", "Sampling", "next_token_probabilities", "sample", "stream"]
