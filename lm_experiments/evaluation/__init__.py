"""What a trained model does beyond its training run.

`generation.py` continues text with it, `loss.py` takes its loss over any text and context length;
`subject.py` is what both kinds of models, trained here or elsewhere, are evaluated as.
"""

from .generation import (
    GenerationError,
    Sampling,
    next_token_probabilities,
    sample,
    sample_batch,
    stream,
)
from .loss import Score, score
from .subject import EvaluationError, Subject
from .texts import EncodedText, documents_to_evaluate, encode

__all__ = [
    "EncodedText",
    "EvaluationError",
    "GenerationError",
    "Sampling",
    "Score",
    "Subject",
    "documents_to_evaluate",
    "encode",
    "next_token_probabilities",
    "sample",
    "sample_batch",
    "score",
    "stream",
]
