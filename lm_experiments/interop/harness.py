"""A trained model as lm-eval, the public evaluation harness, asks it; imported where it is used.

The harness needs no exported model: it asks for the log-likelihood of continuations alone, which
multiple choice and last words are made of (Gao et al., EleutherAI).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.tasks import TaskManager

from lm_experiments.data import Tokenizer
from lm_experiments.errors import InputError, did_you_mean
from lm_experiments.model import Transformer


def check_tasks(tasks: Sequence[str], manager: Any = None) -> None:
    """Raise `InputError` for a name that is no task of the harness."""
    known = (manager or TaskManager()).all_tasks
    for task in tasks:
        if task not in known:
            raise InputError(f"{task} is no task of lm-eval.{did_you_mean(task, known)}")


def score_task(
    model: Transformer, tokenizer: Tokenizer, task: str, manager: Any = None
) -> tuple[str, float] | None:
    """Return the first measure of a task of which more is better, and its value.

    None for a task without one. What it asks is cut on the left to the model's context.
    `manager` finds tasks; None finds those that the harness has.
    """
    found = simple_evaluate(
        HarnessModel(model, tokenizer),
        tasks=[task],
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=False,
    )
    results, is_better = found["results"].get(task, {}), found["higher_is_better"].get(task, {})
    for key, value in results.items():
        name = key.partition(",")[0]
        if is_better.get(name) and isinstance(value, (int, float)):
            return name, float(value)
    return None


class HarnessModel(TemplateLM):  # type: ignore[misc]
    """Answers the harness's requests with a model in evaluation mode."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.model = model
        self.text = tokenizer

    @property
    def eot_token_id(self) -> int:
        """The token before the first of a text."""
        return self.text.end_of_text_id

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Return the tokens of a text."""
        tokens: list[int] = self.text.encode(string).tolist()
        return tokens

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        return [self._likelihood(context, after) for _, context, after in requests]

    @torch.inference_mode()
    def _likelihood(self, context: list[int], after: list[int]) -> tuple[float, bool]:
        """Return the log-probability of a continuation, and whether it is the likeliest."""
        most = self.model.config.context_length + 1
        device = self.model.embedding.weight.device
        tokens = torch.tensor([[*context, *after][-most:]], device=device)
        count = min(len(after), tokens.shape[1] - 1)
        logits = self.model(tokens[:, :-1])[0, -count:].float()
        targets = tokens[0, -count:]
        chosen = logits.log_softmax(-1).gather(1, targets.unsqueeze(1))
        return float(chosen.sum()), bool((logits.argmax(-1) == targets).all())

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Return the log-probability of each whole text, in windows that do not overlap."""
        found = []
        for request in requests:
            tokens, length = self.tok_encode(request.args[0]), self.model.config.context_length
            parts = [tokens[start : start + length] for start in range(0, len(tokens), length)]
            before = [self.eot_token_id, *(part[-1] for part in parts)]
            pairs = zip(before, parts, strict=False)
            found.append(sum(self._likelihood([first], part)[0] for first, part in pairs))
        return found

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Refuse tasks that are answered by generated text."""
        raise InputError("a task that asks for generated text cannot be measured; leave it out.")
