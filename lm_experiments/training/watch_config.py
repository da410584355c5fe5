"""What is looked at while a run trains; nothing of it changes the run's result."""

from __future__ import annotations

from dataclasses import dataclass, field

from lm_experiments.errors import InputError

AUTO = "auto"


@dataclass(frozen=True)
class DiagnosticsConfig:
    """Gradients, updates, activations and attention by layer, kept in ``diagnostics.jsonl``.

    Attributes:
        every: steps between rows, a multiple of trainer.log_every; auto is trainer.log_every, and
            null looks at nothing.
    """

    every: int | str | None = None

    def steps(self, log_every: int, strategy: str) -> int:
        """Return the steps between two rows, 0 for no rows.

        Raises:
            InputError: for another word than auto, for steps that wait for the device without
                need, and for a model that no process has whole.
        """
        if self.every is None:
            return 0
        steps = log_every if self.every == AUTO else self.every
        if not isinstance(steps, int) or steps < 1 or steps % log_every:
            raise InputError(
                f"diagnostics.every={self.every} is not at logged steps; type a multiple of "
                f"trainer.log_every={log_every}, auto for each of its steps, or null."
            )
        _check_whole(f"diagnostics.every={self.every}", strategy)
        return steps


@dataclass(frozen=True)
class SamplesConfig:
    """Text that the model generates on the way, kept in ``samples.jsonl``.

    Attributes:
        every: steps between samples, which the last step has too; null generates nothing.
        prompts: what is continued; an empty text starts a document.
        tokens: the most tokens of a sample.
        temperature: 0 takes the likeliest token; above, tokens are drawn from generators of the
            seed and the step.
    """

    every: int | None = None
    prompts: list[str] = field(default_factory=lambda: [""])
    tokens: int = 64
    temperature: float = 0.0

    def steps(self, strategy: str) -> int:
        """Return the steps between samples, 0 for none.

        Raises:
            InputError: for numbers out of range, no prompt or one twice, and for a model that no
                process has whole.
        """
        if self.every is None:
            return 0
        if self.every < 1 or self.tokens < 1:
            raise InputError(
                f"samples.every={self.every} and samples.tokens={self.tokens} must be 1 or more; "
                "samples.every=null generates nothing."
            )
        if self.temperature < 0:
            raise InputError(f"samples.temperature={self.temperature:g} must be 0 or more.")
        if not self.prompts or len(set(self.prompts)) < len(self.prompts):
            raise InputError(
                f"samples.prompts={self.prompts} must be different texts, at least one; type for "
                "example 'samples.prompts=[\"In the beginning\"]'."
            )
        _check_whole(f"samples.every={self.every}", strategy)
        return self.every


def _check_whole(asked: str, strategy: str) -> None:
    if strategy == "fsdp":
        key = asked.partition("=")[0]
        raise InputError(
            f"{asked} needs the whole model in one process, which trainer.strategy=fsdp cuts into "
            f"shards; type trainer.strategy=ddp, or {key}=null."
        )
