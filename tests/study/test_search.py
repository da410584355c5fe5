"""A search by Hydra's Optuna sweeper: the words it takes, and runs that answer with their loss."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from harness.commands import SMALL, Answer

from lm_experiments.cli.single_run import run_single
from lm_experiments.cli.train import main
from lm_experiments.errors import InputError
from lm_experiments.rundir.results import read_result
from lm_experiments.study.words import SEARCH, prepared_words

SEARCHED = ("-m", SEARCH, "hydra.sweeper.n_trials=3", "optimizer.lr=interval(1e-4,1e-2)")
INSTALLED = importlib.util.find_spec("optuna") is not None


def test_a_search_is_words_of_a_sweep() -> None:
    assert prepared_words(SEARCHED) == list(SEARCHED)
    with pytest.raises(InputError, match="is not read"):
        prepared_words(SEARCHED[1:])


@pytest.mark.parametrize("word", ["plan=true", "study=cs336", "hydra/launcher=ray"])
def test_a_search_chooses_each_run_after_those_before(word: str) -> None:
    with pytest.raises(InputError, match=f"{word} does not go with {SEARCH}"):
        prepared_words([*SEARCHED, word])


@pytest.mark.usefixtures("command")
def test_a_run_answers_with_its_loss(
    tmp_path: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers: list[float | None] = []
    for words in (("plan=true",), (), (), ("optimizer.lr=1e38", "optimizer.clip_norm=0")):
        typed = [*SMALL, f"data.path={text_file}", "schedule=constant", "optimizer=sgd", *words]
        monkeypatch.setattr(sys, "argv", ["scripts/train.py", *typed])
        main(lambda config: answers.append(run_single(config)))
    losses = [read_result(path.parent) for path in Path("runs").glob("*/*/result.json")]
    [usable] = [found.val_loss for found in losses if found and found.usable]
    assert answers == [None, usable, usable, float("inf")]


@pytest.mark.skipif(INSTALLED, reason="Optuna's sweeper is installed")
def test_a_search_without_its_package_says_what_to_install(refused: Callable[..., str]) -> None:
    assert "pip install 'lm_experiments[optuna]'" in refused("train", *SEARCHED)


@pytest.mark.skipif(not INSTALLED, reason="needs pip install 'lm_experiments[optuna]'")
def test_a_search_finds_the_best_of_its_runs(train: Callable[..., Answer]) -> None:
    assert train(*SEARCHED, "hydra.sweeper.sampler.seed=0", "name=search").code == 0
    losses = {
        read_result(path.parent).val_loss for path in Path("runs").glob("search/*/result.json")
    }
    assert len(losses) == 3
    found = yaml.safe_load(Path("runs/optimization_results.yaml").read_text())
    assert found["best_value"] == min(losses)
    again = train(*SEARCHED, "hydra.sweeper.sampler.seed=0", "name=search")
    assert again.out.count("Done already") == 3
