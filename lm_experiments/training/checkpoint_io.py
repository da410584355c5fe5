"""How Lightning reads and writes checkpoints: through files that are whole or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.fabric.plugins import TorchCheckpointIO

from lm_experiments.training.checkpoints import write_whole


class WholeFiles(TorchCheckpointIO):
    """Writes beside the target and renames; Lightning's own goes through another file system."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        """Write one checkpoint, whole or not at all (see `write_whole`)."""
        write_whole(checkpoint, Path(path))
