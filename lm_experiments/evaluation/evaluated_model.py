"""What is evaluated, wherever it comes from: a model, its tokenizer, and the text it brings."""

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
    """A model that can be evaluated.

    Attributes:
        config: its architecture.
        load: builds it in evaluation mode on a device; called when its turn comes.
        tokenizer: how it reads text.
        validation: its own validation text, or None.
    """

    name: str
    config: ModelConfig
    load: Callable[[str], Transformer]
    tokenizer: Tokenizer
    validation: EncodedText | None = None

    def check_positions(self, contexts: Sequence[int]) -> None:
        """Refuse contexts that its positions do not reach, without loading it.

        Raises:
            InputError: naming the subject.
        """
        try:
            sketch_model(self.config).position.extend(max(contexts, default=1))
        except ValueError as error:
            raise InputError(f"{self.name}: {error}") from None

    def check_text(self, text: EncodedText, contexts: Sequence[int]) -> None:
        """Refuse contexts that a text does not fill.

        Raises:
            InputError: naming the subject.
        """
        for length in contexts:
            if length >= len(text.tokens):
                raise InputError(
                    f"{self.name}: a context of {length} is not below the {len(text.tokens)} "
                    "tokens of the text; choose a shorter one, or a longer text."
                )

    def scores(self, text: EncodedText, contexts: Sequence[int], device: str) -> Iterator[Score]:
        """Yield the loss over a text at each context length, its own where none is given."""
        model = self.load(device)
        for length in contexts or [self.config.context_length]:
            yield score(model, text, length)
