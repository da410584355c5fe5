"""Every study that is included can be planned as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lm_experiments.conf_dir import conf_dir
from lm_experiments.rundir.study import read_study

STUDIES = sorted(path.stem for path in (conf_dir() / "study").glob("*.yaml"))
# What makes a plan quick, unless a study is of a synthetic task.
TEXT = ("data=text", "tokenizer=bytes")
QUICK = ("trainer.threads=1", "logger=none", "plan=true")


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_shipped_study_is_planned(train: Callable[..., Any], text_file: Path, name: str) -> None:
    study = read_study(yaml.safe_load((conf_dir() / "study" / f"{name}.yaml").read_text()))
    of_text = study.primary == "val_loss"
    text = (*TEXT, f"data.path={text_file}") if of_text else ()
    answer = train("-m", f"study={name}", *text, *QUICK, small=False)
    assert answer.code == 0, answer.text
    for arm in study.arms:
        assert arm in answer.out
