"""Tests of the model run on one thread, with the same random inputs."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def fixed_inputs(one_thread: None) -> None:
    """Give each test the same random inputs, whichever tests ran before it."""
    torch.manual_seed(0)
