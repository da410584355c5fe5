"""Nothing that a run does to its process reaches the runs after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.processes import Place, time_limit
from harness.runs import assert_same

# Leaves behind whatever a process can hold: types, threads, randomness, environment, handlers.
UNTIDY = '''
import logging, os, random
import numpy, torch
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "untidy", NormOptions)
class Untidy(RMSNorm):
    """RMSNorm that changes everything around it in its last step."""
    calls = 0
    def forward(self, x):
        result = super().forward(x)
        Untidy.calls += torch.is_grad_enabled()
        if Untidy.calls > 30:
            torch.set_default_dtype(torch.float64)
            torch.set_num_threads(2)
            torch.use_deterministic_algorithms(True)
            torch.set_float32_matmul_precision("medium")
            random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
            os.environ["LM_EXPERIMENTS_CACHE"] = "elsewhere"
            logging.getLogger().addHandler(logging.FileHandler("leak.log"))
            RMSNorm.forward = lambda self, x: 2 * x
        return result
'''
OPTIONS = ("model.dropout=0.1", "code_paths=[watched.py,untidy.py]")


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with time_limit(180):
        yield


def test_a_run_after_an_untidy_one_is_the_run_alone(place: Place) -> None:
    (place.folder / "untidy.py").write_text(UNTIDY)
    words = ("-m", *OPTIONS)
    answer = place.train(*words, "norm=untidy,watched", "name=both")
    assert answer.code == 0, answer.text
    answer = place.train(*words, "norm=watched", "arm=watched", "name=alone")
    assert answer.code == 0, answer.text
    assert_same(place.run("both", "watched*"), place.run("alone"))
    assert not (place.folder / "elsewhere").exists()
