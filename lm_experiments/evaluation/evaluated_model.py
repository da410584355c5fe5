"""A model to evaluate, with its tokenizer and its held-out text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lm_experiments.data import Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.evaluation.loss import Score, score
from lm_experiments.evaluation.texts import EncodedText
from lm_experiments.model import ModelConfig, Transformer, sketch_model


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate, trained here or loaded from Hugging Face.

    Attributes:
        name: the name in tables and messages.
        config: its architecture.
        load: loads it in evaluation mode on a device; called when needed.
        tokenizer: its tokenizer.
        held_out: text of its own that it was not trained on, or None.
    """

    name: str
    config: ModelConfig
    load: Callable[[str], Transformer]
    tokenizer: Tokenizer
    held_out: EncodedText | None = None

    def check_positions(self, contexts: Sequence[int]) -> None:
        """Raise an InputError for context lengths that its position encoding does not support."""
        try:
            sketch_model(self.config).position.extend(max(contexts, default=1))
        except ValueError as error:
            raise InputError(f"{self.name}: {error}") from None

    def check_text(self, text: EncodedText, contexts: Sequence[int]) -> None:
        """Raise an InputError for context lengths that are not shorter than the text."""
        for length in contexts:
            if length >= len(text.tokens):
                raise InputError(
                    f"{self.name}: a context of {length} is not below the {len(text.tokens)} "
                    "tokens of the text; choose a shorter one, or a longer text."
                )

    def scores(self, text: EncodedText, contexts: Sequence[int], device: str) -> Iterator[Score]:
        """Yield the loss over a text at each context length, by default its own."""
        model = self.load(device)
        for length in contexts or [self.config.context_length]:
            yield score(model, text, length)
