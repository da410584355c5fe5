"""What this machine has for runs, and which of its GPUs each run at once sees."""

from __future__ import annotations

import os

import torch

from lm_experiments.launch.memory import cores, free_gpu_memory, free_memory
from lm_experiments.launch.resources import Node, Share

VISIBLE = "CUDA_VISIBLE_DEVICES"


def this_machine() -> Node:
    """Return the cores, GPUs and free memory of this machine; an Apple GPU is one."""
    gpus = torch.cuda.device_count() or int(torch.backends.mps.is_available())
    return Node(cores(), gpus, free_memory(), free_gpu_memory())


def places(share: Share) -> list[dict[str, str]]:
    """Return, for each run at once, the variables by which its processes see its GPUs alone."""
    count = torch.cuda.device_count()
    if not share.gpus or not count:
        return [{}] * share.slots
    mask = os.environ.get(VISIBLE)
    names = mask.split(",")[:count] if mask else list(map(str, range(count)))
    whole = max(1, int(share.gpus))
    groups = [names[first : first + whole] for first in range(0, count - whole + 1, whole)]
    return [{VISIBLE: ",".join(groups[slot % len(groups)])} for slot in range(share.slots)]
