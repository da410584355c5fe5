"""Train a run directory as one of the processes of torchrun, on this machine or on several:

torchrun --standalone --nproc-per-node 2 -m lm_experiments.launch.torchrun RUN_DIRECTORY

The user's own code is named again: ``code_paths=[my_norm.py]`` after the directory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from lm_experiments.rundir.claim import claimed
from lm_experiments.rundir.results import is_done
from lm_experiments.training.fit import train_rank
from lm_experiments.training.user_code import load_installed, take_code_paths
from lm_experiments.training.world import world_of_environment


def main(words: Sequence[str]) -> None:
    """Train, unless the run is done; rank zero claims the directory for all.

    Raises:
        InputError: if torchrun was given another number of processes than the run has devices.
    """
    load_installed()
    [run_dir] = map(Path, take_code_paths(words))
    world = world_of_environment()
    if is_done(run_dir):
        return
    with claimed(run_dir) if world.is_rank_zero else nullcontext():
        train_rank(run_dir, world)


if __name__ == "__main__":
    main(sys.argv[1:])
