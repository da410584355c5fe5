"""NVIDIA's Multi-Process Service, by which runs that share a GPU compute at the same time.

Without it their kernels take turns. It is started for a sweep and ends with it
(docs.nvidia.com/deploy/mps).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
ANSWER_SECONDS = 30.0
TIME_SLICES = "runs on one GPU share it by time slices"


def how_shared() -> str:
    """Return how runs on one GPU will share it."""
    if shutil.which(CONTROL) is None:
        return f"{TIME_SLICES}, since {CONTROL} is not installed"
    return "runs on one GPU share it through NVIDIA's MPS"


@contextmanager
def gpu_sharing(gpus: float) -> Iterator[dict[str, str]]:
    """Run the service while runs have so many GPUs each, if that is a part of one.

    Yields the variables by which the processes of runs find it, none where it cannot be started or
    the user has started it.
    """
    control = shutil.which(CONTROL)
    if not 0 < gpus < 1 or control is None or PIPES in os.environ:
        yield {}
        return
    # Named pipes allow no long path.
    with tempfile.TemporaryDirectory(
        prefix="mps-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        found = {PIPES: str(Path(folder) / "pipes"), LOGS: str(Path(folder) / "logs")}
        for path in found.values():
            Path(path).mkdir()
        if problem := _ask(control, found, "-d"):
            print(f"NVIDIA's MPS did not start ({problem}); {TIME_SLICES}.", flush=True)
            yield {}
            return
        try:
            yield found
        finally:
            _ask(control, found, said="quit\n")


def _ask(control: str, variables: Mapping[str, str], *options: str, said: str = "") -> str:
    """Call the service's control program; return what went wrong, nothing if nothing did.

    The service numbers all GPUs, since it would number anew those that a mask leaves.
    """
    unmasked = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    try:
        # In a session of its own, which a Ctrl-C in the terminal does not reach.
        done = subprocess.run(
            [control, *options],
            input=said,
            env={**unmasked, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=ANSWER_SECONDS,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return f"exit code {done.returncode}" if done.returncode else ""
