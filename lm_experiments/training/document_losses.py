"""The last validation pass of a run, summed by document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from numpy.typing import NDArray
from torch import Tensor

from lm_experiments.data import PreparedData
from lm_experiments.data.documents import DocumentSums, document_ends
from lm_experiments.errors import InputError
from lm_experiments.rundir.documents import DocumentLosses, write_document_losses
from lm_experiments.training.batches import Batches


class KeepDocumentLosses(Callback):
    """Writes the loss of every validation document by the weights of the last step.

    The losses of that pass stay on the device, 4 bytes for each token, until it is over. The file
    is written before the last checkpoint, which says that the run needs no further validation.
    """

    def __init__(self, run_dir: Path, batches: Batches) -> None:
        self.run_dir = run_dir
        self.batches = batches
        self.losses: list[Tensor] = []

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, *args: Any
    ) -> None:
        """Keep the losses of a batch, where no step is left."""
        if trainer.global_step == pl_module.config.trainer.max_steps:
            self.losses.append(outputs)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Sum what was kept over each document and all processes, and write it."""
        data, world = self.batches.data, self.batches.world
        losses, self.losses = self.losses, []
        ends = _ends(data) if losses else None
        if ends is None:
            return
        found = DocumentSums(ends)
        own = self.batches.validation(world.rank)
        for index, rows in enumerate(losses[: len(own)]):
            found.add(own.starts(index), rows.cpu().numpy())
        sums = world.add_up(torch.from_numpy(found.sums).to(pl_module.device)).cpu().numpy()
        if world.is_rank_zero:
            write_document_losses(self.run_dir, DocumentLosses(sums, found.tokens))


def _ends(data: PreparedData) -> NDArray[np.int64] | None:
    """Return where validation documents end, None where no token tells."""
    try:
        ends = document_ends(data.val.tokens, data.tokenizer.end_of_text_id)
    except InputError:  # ready tokens, whose tokenizer is not known
        return None
    return ends if len(ends) else None
