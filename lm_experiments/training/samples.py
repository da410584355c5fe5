"""Writes text that the model generates on the way, without any influence on the training."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from lm_experiments.data import Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.evaluation.generation import Sampling, encode_prompt, sample_batch
from lm_experiments.model import keyed_seed
from lm_experiments.rundir.metrics import Row, append_row, keep_rows, read_rows
from lm_experiments.rundir.names import SAMPLES
from lm_experiments.training.config import RunConfig
from lm_experiments.training.layer_statistics import looking_inside
from lm_experiments.training.wandb.logger import WandbMirror


class Samples(Callback):
    """Continues each prompt every ``samples.every`` steps and after the last one.

    A row of ``samples.jsonl`` is ``{"step", "prompt", "text"}``, where the text follows the prompt;
    it is null where the model's logits are not finite. W&B shows all rows as a page. Only rank
    zero has this callback. The training clock stands still meanwhile.

    Raises:
        InputError: for a prompt that the tokenizer does not know, before any training.
    """

    def __init__(self, run_dir: Path, config: RunConfig, tokenizer: Tokenizer) -> None:
        self.path = run_dir / SAMPLES
        self.config = config
        self.tokenizer = tokenizer
        self.prompts = {
            text: encode_prompt(text, tokenizer, "samples.prompts")
            for text in config.samples.prompts
        }

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Drop the rows of steps that are made again."""
        keep_rows(self.path, trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        """Generate and write, where it is due."""
        step = trainer.global_step
        if step % self.config.samples_every and step != trainer.max_steps:
            return
        pl_module.history.pause()
        for prompt, text in zip(self.prompts, self._texts(pl_module.model, step), strict=True):
            append_row(self.path, {"step": step, "prompt": prompt, "text": text})
        for logger in pl_module.loggers:
            if isinstance(logger, WandbMirror) and logger.mode != "disabled":
                logger.log_metrics({"samples": _page(read_rows(self.path))}, step)
        pl_module.history.resume()

    def _texts(self, model: Any, step: int) -> list[str | None]:
        options, seed = self.config.samples, self.config.seed
        generators = [
            torch.Generator().manual_seed(keyed_seed(seed, "samples", step, number))
            for number in range(len(self.prompts))
        ]
        with looking_inside(model):
            try:
                ids = sample_batch(
                    model,
                    list(self.prompts.values()),
                    options.tokens,
                    Sampling(options.temperature),
                    generators,
                    self.tokenizer.end_of_text_id,
                )
            except InputError:
                return [None] * len(self.prompts)
        return [self.tokenizer.decode(own) for own in ids]


def _page(rows: list[Row]) -> Any:
    """Return all samples so far as a page of W&B, which unlike its tables is no artifact."""
    import wandb

    cells = ([row["step"], row["prompt"], row["text"]] for row in rows)
    lines = (f"<tr>{''.join(f'<td>{html.escape(str(c))}</td>' for c in own)}</tr>" for own in cells)
    heads = "<tr><th>step</th><th>prompt</th><th>text</th></tr>"
    return wandb.Html(f"<table>{heads}{''.join(lines)}</table>", inject=False)
