"""What a trained model does beyond its training run.

`generation.py` continues text with it, `loss.py` takes its loss over any text and context length;
`subject.py` is what both kinds of models, trained here or elsewhere, are evaluated as.
"""

from lm_experiments.evaluation.evaluated_model import EvaluatedModel
from lm_experiments.evaluation.generation import (
    Sampling,
    next_token_probabilities,
    sample,
    sample_batch,
    stream,
)
from lm_experiments.evaluation.loss import Score, score
from lm_experiments.evaluation.texts import EncodedText, documents_to_evaluate, encode

__all__ = [
    "EncodedText",
    "EvaluatedModel",
    "Sampling",
    "Score",
    "documents_to_evaluate",
    "encode",
    "next_token_probabilities",
    "sample",
    "sample_batch",
    "score",
    "stream",
]
