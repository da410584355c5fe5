"""Train a run directory as one of the processes of torchrun, on this machine or on several:

torchrun --standalone --nproc-per-node 2 -m lm_experiments.launch.torchrun RUN_DIRECTORY

After the directory may come ``code_paths=[my_norm.py]``: what a run directory names is not run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from lm_experiments.rundir.identity import read_identity
from lm_experiments.rundir.results import is_done
from lm_experiments.training.fit import claimed, train_claimed
from lm_experiments.training.user_code import load_installed, take_code_paths
from lm_experiments.training.world import world_of_environment


def main(words: Sequence[str]) -> None:
    """Train, where nobody has; the first process claims the directory for all.

    Raises:
        InputError: where torchrun was told another number of processes than the run.
    """
    load_installed()
    [run_dir] = map(Path, take_code_paths(words))
    world = world_of_environment()
    identity = read_identity(run_dir)
    if is_done(run_dir):
        return
    with claimed(run_dir) if world.leads else nullcontext(True):
        train_claimed(run_dir, identity, world)


if __name__ == "__main__":
    main(sys.argv[1:])
