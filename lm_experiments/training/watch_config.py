"""What is looked at while a run trains; nothing of it changes the run's result."""

from __future__ import annotations

from dataclasses import dataclass

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

    def steps(self, log_every: int, strategy: str) -> int | None:
        """Return the steps between two rows, None for no rows.

        Raises:
            InputError: for another word than auto, for steps that wait for the device without
                need, and for a model that no process has whole.
        """
        if self.every is None:
            return None
        steps = log_every if self.every == AUTO else self.every
        if not isinstance(steps, int) or steps < 1 or steps % log_every:
            raise InputError(
                f"diagnostics.every={self.every} is not at logged steps; type a multiple of "
                f"trainer.log_every={log_every}, auto for each of its steps, or null."
            )
        if strategy == "fsdp":
            raise InputError(
                f"diagnostics.every={self.every} needs the whole model in one process, which "
                "trainer.strategy=fsdp cuts into shards; type trainer.strategy=ddp, or "
                "diagnostics.every=null."
            )
        return steps
