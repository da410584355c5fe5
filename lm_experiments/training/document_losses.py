"""The last pass of a run over text that it was not trained on, summed by document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from numpy.typing import NDArray
from torch import Tensor

from lm_experiments.data import PreparedData, Source, TokenStore
from lm_experiments.data.documents import DocumentSums, document_ends
from lm_experiments.errors import InputError
from lm_experiments.rundir.documents import DocumentLosses, write_document_losses
from lm_experiments.training.batches import Batches


class KeepDocumentLosses(Callback):
    """Writes the loss of every document by the weights of the last step.

    The documents are those of the validation set, and of the test set where there is one. The
    losses of a pass stay on the device, 4 bytes for each token, until it is over. Where the last
    checkpoint says that the run needs no further validation, the file is there already.
    """

    def __init__(self, run_dir: Path, batches: Batches) -> None:
        self.run_dir = run_dir
        self.batches = batches
        self.losses: list[Tensor] = []

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, *args: Any
    ) -> None:
        """Keep the losses of a batch of the whole set, where no step is left."""
        over = trainer.global_step == pl_module.config.trainer.max_steps
        if over and pl_module.passing is None and not pl_module.of_average:
            self.losses.append(outputs)

    def on_test_batch_end(self, *args: Any, **keywords: Any) -> None:
        """Keep the losses of a batch."""
        self.on_validation_batch_end(*args, **keywords)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write what was kept of the validation set."""
        self._write(self.batches.data.val, pl_module.device)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write what was kept of the test set, in place of the validation set's."""
        assert self.batches.data.test is not None
        self._write(self.batches.data.test, pl_module.device)

    def _write(self, part: Source, device: torch.device) -> None:
        """Sum what was kept over each document and all processes."""
        losses, self.losses = self.losses, []
        ends = _ends(self.batches.data, part) if losses else None
        if ends is None:
            return
        found, world = DocumentSums(ends), self.batches.world
        own = self.batches.share(part, world.rank)
        for index, rows in enumerate(losses[: len(own)]):
            found.add(own.starts(index), rows.cpu().numpy())
        sums = world.add_up(torch.from_numpy(found.sums).to(device)).cpu().numpy()
        if world.is_rank_zero:
            write_document_losses(self.run_dir, DocumentLosses(sums, found.tokens))


def _ends(data: PreparedData, part: Source) -> NDArray[np.int64] | None:
    """Return where the documents of a set end, None where there are none or no token tells."""
    if not isinstance(part, TokenStore):
        return None
    try:
        ends = document_ends(part.tokens, data.tokenizer.end_of_text_id)
    except InputError:  # ready tokens, whose tokenizer is not known
        return None
    return ends if len(ends) else None
