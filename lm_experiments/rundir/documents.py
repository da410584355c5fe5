"""``documents.npz``: the final validation loss of every document of a run."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.rundir.names import DOCUMENTS, damaged


@dataclass(frozen=True)
class DocumentLosses:
    """The losses of the documents of the validation set, or of the test set where there is one.

    They stand in the order of the text.

    Runs of one corpus, tokenizer and context have the same documents at the same places. A first
    document that is empty text has no predicted token; it is kept, with 0 tokens.

    Attributes:
        sums: nats over the predicted tokens of each document, (documents,), float64. They add up
            to the run's ``val_loss * val_tokens`` (or that of the test set), up to rounding.
        tokens: how many these are, (documents,), int64; they add up to ``val_tokens``.
    """

    sums: NDArray[np.float64]
    tokens: NDArray[np.int64]


def write_document_losses(run_dir: Path, losses: DocumentLosses) -> None:
    """Write the run's losses by document, whole or not at all; equal losses give equal files."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, sums=losses.sums, tokens=losses.tokens)
    write_atomically(run_dir / DOCUMENTS, buffer.getvalue())


def read_document_losses(run_dir: Path) -> DocumentLosses | None:
    """Return the run's losses by document; None where there is no such file.

    Runs that were cut short have none, nor those whose validation text has no end-of-text token.

    Raises:
        InputError: where the file is damaged.
    """
    path = run_dir / DOCUMENTS
    try:
        with np.load(path, allow_pickle=False) as arrays:
            losses = DocumentLosses(arrays["sums"], arrays["tokens"])
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise damaged(path, f"it does not hold sums and tokens: {error}") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise damaged(path, str(error).rstrip(".")) from None
    sums, tokens = losses.sums, losses.tokens
    if sums.ndim != 1 or sums.shape != tokens.shape:
        raise damaged(path, f"it has sums of shape {sums.shape} and tokens of {tokens.shape}")
    if sums.dtype != np.float64 or tokens.dtype != np.int64 or (tokens < 0).any():
        raise damaged(path, "its sums and tokens are not numbers and counts")
    return losses
