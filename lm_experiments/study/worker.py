"""Train a run directory as one of the processes of torchrun, on this machine or on several:

torchrun --standalone --nproc-per-node 2 -m lm_experiments.study.worker RUN_DIRECTORY
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from lm_experiments.training.config import load_config
from lm_experiments.training.fit import claimed, train_claimed
from lm_experiments.training.result import is_done
from lm_experiments.training.typed import ConfigError
from lm_experiments.training.world import world_of_environment

from .choices import load_code, load_installed
from .plan import IDENTITY


def main(run_dir: Path) -> None:
    """Train, where nobody has; the first process claims the directory for all.

    Raises:
        ConfigError: where torchrun was told another number of processes than the run.
    """
    load_installed()
    config = load_config(run_dir)
    load_code(config.code_paths)
    world = world_of_environment()
    if world.size != config.trainer.devices:
        raise ConfigError(
            f"{run_dir} has trainer.devices={config.trainer.devices}, and there are {world.size} "
            f"processes; type torchrun --nproc-per-node {config.trainer.devices}."
        )
    identity = json.loads((run_dir / IDENTITY).read_text(encoding="utf-8"))
    if is_done(run_dir):
        return
    with claimed(run_dir) if world.leads else nullcontext(True):
        train_claimed(run_dir, identity, world)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
