"""Small models are fastest on one thread, and one thread gives the same bits every time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Hold torch to one thread while the tests of this folder run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def fixed_inputs() -> None:
    """Give each test the same random inputs, whichever tests ran before it."""
    torch.manual_seed(0)
