"""Text to tokens to batches.

1. `load_documents` reads a corpus and `split_documents` divides it into training,
   validation and test text; `hub` streams corpora that do not fit in memory.
2. `train_tokenizer` trains a vocabulary on the training text alone, or reads one from files.
3. A `TokenStore` memory-maps the tokens of one split; `token_files` maps files that other tools
   have tokenized.
4. `prepare` does all of this once, under a lock, and caches the result.
5. `TrainingBatches` gives the batch of any step, `EvaluationBatches` the whole split once.

Synthetic tasks (`tasks`) have no text and no files: `problems` draws their batches. A `Source` is
either, one part of what is trained or evaluated on.
"""

from __future__ import annotations

from lm_experiments.data.batches import (
    IGNORE_INDEX,
    EvaluationBatches,
    TrainingBatches,
    windows,
)
from lm_experiments.data.config import PARTS, DataConfig, check_pair
from lm_experiments.data.corpora import Documents, content_hash, load_documents
from lm_experiments.data.overlap import overlap_lines
from lm_experiments.data.prepare import PreparedData, prepare
from lm_experiments.data.problems import chance
from lm_experiments.data.sources import Endless, Once, Source
from lm_experiments.data.split import Split, split_documents
from lm_experiments.data.store import TokenStore
from lm_experiments.data.tokenizers import (
    Tokenizer,
    files_hash,
    load_tokenizer,
    train_tokenizer,
)

__all__ = [
    "IGNORE_INDEX",
    "PARTS",
    "DataConfig",
    "Documents",
    "Endless",
    "EvaluationBatches",
    "Once",
    "PreparedData",
    "Source",
    "Split",
    "TokenStore",
    "Tokenizer",
    "TrainingBatches",
    "chance",
    "check_pair",
    "content_hash",
    "files_hash",
    "load_documents",
    "load_tokenizer",
    "overlap_lines",
    "prepare",
    "split_documents",
    "train_tokenizer",
    "windows",
]
