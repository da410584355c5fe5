"""The two sources of noise in a difference of losses: which seeds, and which documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.estimates import Array


@dataclass(frozen=True)
class Noise:
    """A difference of losses in nats per token, and its standard errors.

    `seed_error` is over seeds, None for one seed; `document_error` is over documents (or clusters
    of them), of which there are `documents`; `error` combines both. `low` to `high` is the 95 %
    interval with `degrees` degrees of freedom, for a fresh seed and a fresh text of the same kind;
    from one seed, for a fresh text alone.
    """

    difference: float
    seed_error: float | None
    document_error: float
    error: float
    degrees: float
    low: float
    high: float
    documents: int

    @property
    def across_seeds(self) -> bool:
        """Whether the interval holds for a fresh seed too; from one seed it does not."""
        return self.seed_error is not None


def document_noise(
    differences: ArrayLike, tokens: ArrayLike, clusters: Sequence[object] | None = None
) -> Noise:
    """The difference between two arms and its noise from the choice of documents and of seeds.

    `differences` has shape (documents,) or (seeds, documents): the summed loss of a document
    under the arm minus that under the reference, in nats. `tokens` has shape (documents,): how
    many tokens these sums run over. `clusters` gives documents that belong together (one source,
    one author) the same label; they count as one draw.

    The difference is the ratio of sums, as in the table's loss, so its error over documents is
    that of a ratio estimator (Cochran 1977, ch. 6), linearised and clustered. Seeds and documents
    are crossed: the combined variance is that over documents plus that over seeds, less the part
    that both contain (two-way clustering, Cameron, Gelbach & Miller 2011), with degrees of freedom
    after Satterthwaite (1946). Assumes documents (or clusters) drawn independently, and about 20
    or more of them. The interval is too wide where the seeds differ only by noise that is
    independent from document to document.

    Raises `InputError` for shapes that do not fit, values that are not finite, documents without
    tokens, and fewer than two documents or clusters.
    """
    sums = np.atleast_2d(np.asarray(differences, dtype=float))
    weights = np.asarray(tokens, dtype=float)
    places = _places(sums, weights, clusters)
    by_seed = sums.sum(axis=1) / weights.sum()
    difference = float(by_seed.mean())
    parts = _added(sums - difference * weights, places) / weights.sum()
    document_variance = _scale(parts.shape[1]) * float((parts.mean(axis=0) ** 2).sum())
    if len(sums) == 1:
        return _noise(difference, None, document_variance, 0.0, parts.shape)
    seed_variance = float(by_seed.var(ddof=1)) / len(sums)
    [shares] = _added(weights[None], places) / weights.sum()
    rest = parts - parts.mean(axis=0) - np.outer(by_seed - difference, shares)
    shared = _scale(parts.shape[1]) * float((rest**2).sum()) / (len(sums) * (len(sums) - 1))
    return _noise(difference, seed_variance, document_variance, shared, parts.shape)


def _places(sums: Array, weights: Array, clusters: Sequence[object] | None) -> NDArray[np.int64]:
    """The number of each document's cluster, shape (documents,)."""
    documents = sums.shape[1]
    labels = list(range(documents)) if clusters is None else list(clusters)
    if sums.ndim != 2 or weights.shape != (documents,) or len(labels) != documents:
        raise InputError(
            f"The shapes differ: {sums.shape} differences, {weights.shape} tokens and "
            f"{len(labels)} clusters; give one of each for every document."
        )
    if not np.isfinite(sums).all() or not np.all(weights > 0):
        raise InputError("A document has no tokens or no finite loss; leave it out of both arms.")
    order = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    if len(order) < 2:
        raise InputError(
            f"Noise over documents needs two documents or clusters, not {len(order)}; use "
            "more text."
        )
    return np.array([order[label] for label in labels])


def _added(rows: Array, places: NDArray[np.int64]) -> Array:
    """Rows of documents, added up within each cluster: (rows, clusters)."""
    return np.array([np.bincount(places, row) for row in rows])


def _scale(clusters: int) -> float:
    return clusters / (clusters - 1)


def _noise(
    difference: float,
    seed_variance: float | None,
    document_variance: float,
    shared: float,
    shape: tuple[int, ...],
) -> Noise:
    seeds, clusters = shape
    of_seeds = seed_variance or 0.0
    variance = document_variance + max(0.0, of_seeds - shared)
    spread = of_seeds**2 / max(1, seeds - 1) + document_variance**2 / (clusters - 1)
    degrees = variance**2 / spread if spread > 0 else float(clusters - 1)
    half = float(stdtrit(degrees, 0.975)) * math.sqrt(variance)
    seed_error = None if seed_variance is None else math.sqrt(seed_variance)
    return Noise(
        difference,
        seed_error,
        math.sqrt(document_variance),
        math.sqrt(variance),
        degrees,
        difference - half,
        difference + half,
        clusters,
    )
