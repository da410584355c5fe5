"""Evaluation of trained models.

`generation.py` generates text, `loss.py` computes the loss over any text and context length.
"""

from lm_experiments.evaluation.generation import (
    Sampling,
    encode_prompt,
    next_token_probabilities,
    sample_batch,
    stream,
)
from lm_experiments.evaluation.loss import Score, score
from lm_experiments.evaluation.texts import EncodedText, documents_to_evaluate, encode

__all__ = [
    "EncodedText",
    "Sampling",
    "Score",
    "documents_to_evaluate",
    "encode",
    "encode_prompt",
    "next_token_probabilities",
    "sample_batch",
    "score",
    "stream",
]
