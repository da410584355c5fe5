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
# What makes a plan quick.
TEXT = ("data=text", "tokenizer=bytes", "trainer.threads=1", "logger=none")


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_shipped_study_is_planned(train: Callable[..., Any], text_file: Path, name: str) -> None:
    words = ("-m", f"study={name}", *TEXT, f"data.path={text_file}", "plan=true")
    answer = train(*words, small=False)
    assert answer.code == 0, answer.text
    study = read_study(yaml.safe_load((conf_dir() / "study" / f"{name}.yaml").read_text()))
    for arm in study.arms:
        assert arm in answer.out
