"""Sweeps through the real command line: planned whole, trained apart, and found again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from lm_experiments.data import TrainingBatches
from lm_experiments.training.config import load_config

GRID = ("-m", "placement=pre,post", "ffn=relu,swiglu")

BROKEN = '''
import os, signal
from lm_experiments.model import register
from lm_experiments.model.norms import RMSNorm, NormOptions

@register("norm", "raising", NormOptions)
class Raising(RMSNorm):
    """Raises in its first forward pass."""
    def forward(self, x):
        raise RuntimeError("this norm is broken")

@register("norm", "dying", NormOptions)
class Dying(RMSNorm):
    """Takes its process with it."""
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)
'''


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]


def test_a_sweep_trains_every_combination_once(train: Callable[..., Any]) -> None:
    first = train(*GRID, "seed=0,1", "name=grid")
    assert first.code == 0, first.err
    folder = Path("runs/grid")
    done = results(folder)
    assert len(done) == 8
    assert {(r["arm"], r["seed"]) for r in done} == {
        (f"{placement} {ffn}", seed)
        for placement in ("pre", "post")
        for ffn in ("relu", "swiglu")
        for seed in (0, 1)
    }
    assert len({r["config_hash"] for r in done}) == 8
    record = json.loads((folder / "sweep.json").read_text())
    assert record["axes"] == ["placement", "ffn"]
    assert record["runs"][0]["overrides"] == ["placement=pre", "ffn=relu"]
    assert "8 runs: 4 arms" in first.out
    assert "8 done, 0 failed" in first.out
    assert (folder / "table.md").exists()
    assert (folder / "curves.png").exists()
    assert "4 arms, 8 of 8 runs finished" in (folder / "report.html").read_text()

    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/*.json*")}
    again = train(*GRID, "seed=0,1", "name=grid")
    assert again.code == 0
    assert "8 done already, 0 to train" in again.out
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("*/*.json*")}

    more = train(*GRID, "seed=0,1,2", "name=grid")
    assert "8 done already, 4 to train" in more.out
    assert len(results(folder)) == 12


# Notes a hash of every training batch, by process.
NOTING = """
import hashlib, os
from pathlib import Path
from lm_experiments.data import TrainingBatches

batch = TrainingBatches.batch

def noted(self, step, *part):
    inputs, targets = batch(self, step, *part)
    with Path(f"batches-{os.getpid()}").open("a") as file:
        file.write(hashlib.sha256(inputs.numpy().tobytes()).hexdigest() + "\\n")
    return inputs, targets

TrainingBatches.batch = noted
"""


def test_arms_of_one_seed_see_the_same_batches(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command loads the file in this process too, where its patch must not stay.
    monkeypatch.setattr(TrainingBatches, "batch", TrainingBatches.batch)
    Path("noting.py").write_text(NOTING)
    answer = train("-m", "ffn=relu,swiglu", "seed=0,1", "code_paths=[noting.py]", "name=pair")
    assert answer.code == 0, answer.err
    seen = {}
    for log in Path("runs/pair").glob("*/train.log"):
        [pid] = re.findall(r"process (\d+) trains", log.read_text())
        arm, seed, _ = log.parent.name.split("-")
        seen[arm, seed] = Path(f"batches-{pid}").read_text().splitlines()
    assert len(seen) == 4
    assert all(len(set(batches)) == 3 for batches in seen.values())
    assert seen["relu", "s0"] == seen["swiglu", "s0"]
    assert seen["relu", "s1"] == seen["swiglu", "s1"]
    assert not set(seen["relu", "s0"]) & set(seen["relu", "s1"])


def test_what_follows_from_the_seed_follows_from_that_of_each_run(
    train: Callable[..., Any],
) -> None:
    answer = train("-m", "ffn=relu,swiglu", "seed=0,7", "trainer.max_steps=${seed}", "name=own")
    assert answer.code == 2
    assert "trainer.max_steps=0 must be 1 or more" in answer.err
    answer = train("-m", "ffn=relu,swiglu", "seed=1,2", "trainer.max_steps=${seed}", "name=own")
    assert answer.code == 0, answer.err
    steps = [(r["arm"], r["seed"], r["steps"]) for r in results(Path("runs/own"))]
    assert sorted(steps) == [(a, s, s) for a in ("relu", "swiglu") for s in (1, 2)]


def test_a_split_and_tags_that_follow_from_the_seed_are_those_of_each_run(
    train: Callable[..., Any],
) -> None:
    tags = ("logger=wandb", "logger.mode=disabled", "logger.tags=[s${seed}]")
    answer = train("-m", "seed=0,1", "data.split_seed=${seed}", *tags, "name=split")
    assert answer.code == 0, answer.err
    found = map(load_config, sorted(Path("runs/split").glob("*-s?-*")))
    assert [(c.seed, c.data.split_seed, c.logger.tags) for c in found] == [
        (0, 0, ["s0"]),
        (1, 1, ["s1"]),
    ]


def test_an_arm_is_composed_once_whatever_its_seeds(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    composed = []
    load = ConfigLoaderImpl.load_sweep_config

    def counted(self: Any, base: Any, words: list[str]) -> Any:
        composed.append(words)
        return load(self, base, words)

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counted)
    answer = train("-m", "ffn=relu,swiglu", "seed=0,1", "name=once")
    assert answer.code == 0, answer.err
    # Once more for what both arms share.
    assert len(composed) == 3


def test_one_broken_run_does_not_stop_the_others(train: Callable[..., Any]) -> None:
    Path("broken.py").write_text(BROKEN)
    sweep = ("-m", "norm=raising,rmsnorm,dying", "code_paths=[broken.py]", "name=mixed")
    answer = train(*sweep)
    assert answer.code == 1
    by_arm = {r["arm"]: r for r in results(Path("runs/mixed"))}
    assert by_arm["rmsnorm"]["status"] == "done"
    assert by_arm["raising"]["status"] == by_arm["dying"]["status"] == "failed"
    assert by_arm["raising"]["error"]["message"] == "this norm is broken"
    assert "killed by signal 9" in by_arm["dying"]["error"]["message"]
    assert "1 done, 2 failed" in answer.out
    assert "this norm is broken" in answer.out
    [log] = Path("runs/mixed").glob("raising*/train.log")
    assert "Traceback" in log.read_text()
    table = Path("runs/mixed/table.md").read_text()
    assert sum(row.startswith("|") and "FAILED" in row for row in table.splitlines()) == 2

    # The component's code is part of what a run is: what is done would no longer be comparable.
    Path("broken.py").write_text(BROKEN + "# edited")
    edited = train(*sweep)
    assert edited.code == 2
    assert "arm 'rmsnorm', seed 0, done, with other settings (code: " in edited.err
    anew = train(*sweep[:-1], "name=anew")
    assert "1 done, 2 failed" in anew.out


def test_an_arm_configured_otherwise_is_not_mixed_in(train: Callable[..., Any]) -> None:
    assert train("-m", "ffn=relu,swiglu", "name=mix").code == 0
    answer = train("-m", "ffn=relu,swiglu", "name=mix", "optimizer.lr=0.1")
    assert answer.code == 2
    assert "optimizer.lr: 0.003 and 0.1, there and now" in answer.err
    assert len(results(Path("runs/mix"))) == 2


def test_a_users_own_component_is_chosen_from_the_command_line(train: Callable[..., Any]) -> None:
    Path("mine.py").write_text(
        '''
from dataclasses import dataclass
from lm_experiments.model import register
from lm_experiments.model.norms import RMSNorm

@dataclass(frozen=True)
class HalfOptions:
    eps: float = 1e-5
    factor: float = 0.5

@register("norm", "half", HalfOptions)
class Half(RMSNorm):
    """RMSNorm, halved."""
    def __init__(self, options, width):
        super().__init__(options, width)
        self.factor = options.factor
    def forward(self, x):
        return self.factor * super().forward(x)
'''
    )
    words = ("norm=half", "model.norm.factor=0.25", "code_paths=[mine.py]")
    answer = train(*words, "trainer.max_steps=20", "name=own")
    assert answer.code == 0, answer.err
    [result] = results(Path("runs/own"))
    assert result["outcome"] == "ok"
    [config] = Path("runs/own").glob("*/config.yaml")
    assert "factor: 0.25" in config.read_text()
    refused = train("norm=half", "model.norm.fctor=1", "code_paths=[mine.py]")
    assert refused.code == 2
    assert "norm=half has no option fctor; it has model.norm.eps, model.norm.factor" in refused.err


def test_two_configurations_of_one_arm_and_seed_are_refused_before_training(
    train: Callable[..., Any],
) -> None:
    answer = train("-m", "placement=pre,post", "arm=mine", "name=one")
    assert answer.code == 2
    assert "Arm 'mine' has two configurations for seed 0 (model.placement.name: pre and post)" in (
        answer.err
    )
    assert "leave arm=... out" in answer.err
    assert not list(Path("runs").glob("*/*"))


def test_controls_of_one_command_are_arms_of_their_own(train: Callable[..., Any]) -> None:
    answer = train("-m", "control=a,b,c", "plan=true")
    assert answer.code == 0, answer.err
    assert "3 runs: 3 arms" in answer.out


def test_runs_of_other_code_are_told_before_more_are_trained(train: Callable[..., Any]) -> None:
    words = ("-m", "ffn=relu", "trainer.max_steps=1", "name=told")
    assert train(*words, "seed=0,1").code == 0
    for path in Path("runs/told").glob("*-s1-*/result.json"):
        path.write_text(re.sub('"code_hash": "[^"]*"', '"code_hash": "other"', path.read_text()))
    told = "warning: 1 of the 2 runs done already were trained by other code"
    assert told in train(*words, "seed=0,1,2", "plan=true").out
    assert "other code" not in train(*words, "seed=0,2", "plan=true").out


def test_the_plan_of_many_arms_shows_each_size_once(train: Callable[..., Any]) -> None:
    rates = ",".join(f"{number}e-4" for number in range(1, 27))
    answer = train("-m", f"optimizer.lr={rates}", "ffn=relu,gelu", "seed=range(0,9)", "plan=true")
    assert answer.code == 0, answer.err
    header, baseline, others, *_ = answer.out.splitlines()
    assert header.startswith("arm  ")
    assert baseline.startswith("lr=0.0001 relu  ")
    assert others.startswith("lr=0.0001 gelu and 50 more  ")
    assert "468 runs: 52 arms, seeds 0 to 8; 0 done already, 468 to train" in answer.out


def test_texts_of_one_name_are_arms_of_their_own(train: Callable[..., Any]) -> None:
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, "input.txt").write_text(f"some words of {name}\n" * 200)
    answer = train("-m", "data.path=a/input.txt,b/input.txt", "plan=true")
    assert answer.code == 0, answer.err
    assert "2 runs: 2 arms" in answer.out
    assert "path=a/input.txt" in answer.out


def test_what_of_the_validation_text_occurs_in_training_is_said_of_each_corpus(
    train: Callable[..., Any],
) -> None:
    Path("own.txt").write_text("|".join(f"some words of {index}\n" * 20 for index in range(20)))
    Path("same.txt").write_text("a b c d e f g h i j k l m n o " * 99)
    words = ("data.separator='|'", "tokenizer=bytes", "data=text")
    answer = train("-m", "data.path=own.txt,same.txt", *words, "plan=true")
    assert answer.code == 0, answer.err
    said = "validation text: 0 of {} % of its 13-word sequences occur in training ({}).\n"
    assert said.format("2 documents and 0.0", "path=own.txt") in answer.out
    assert said.format("1 documents and 100.0", "path=same.txt") in answer.out


def test_each_arm_keeps_which_settings_it_changes(train: Callable[..., Any]) -> None:
    answer = train(
        "-m", "ffn=relu,swiglu", "norm=rmsnorm,layernorm", "trainer.max_steps=1", "name=kept"
    )
    assert answer.code == 0, answer.err
    assert "No table" not in answer.out
    rows = json.loads(Path("runs/kept/sweep.json").read_text())["runs"]
    changes = {row["arm"]: row["changes"] for row in rows}
    assert changes["swiglu rmsnorm"] == []
    assert "model.ffn.name" in changes["relu rmsnorm"]
    assert "model.norm.name" not in changes["relu rmsnorm"]
    assert {"model.ffn.name", "model.norm.name"} <= set(changes["relu layernorm"])
    assert not {"optimizer.lr", "data_hash"} & set(changes["relu layernorm"])
    sweep = ("-m", "ffn=relu,swiglu", "norm=rmsnorm,layernorm", "seed=1", "name=kept")
    other = train(*sweep, "trainer.max_steps=1", "optimizer.weight_decay=0.3")
    assert other.code == 2
    assert "differ in optimizer.weight_decay (" in other.err
    assert len(results(Path("runs/kept"))) == 4


def test_arms_that_share_no_configuration_by_itself_are_told_from_the_first(
    train: Callable[..., Any],
) -> None:
    answer = train(
        "-m",
        "attention=sliding,sliding",
        "ffn=relu,swiglu",
        "model.attention.window=4,8",
        "trainer.max_steps=1",
        "name=windows",
    )
    assert answer.code == 0, answer.err
    assert "No table" not in answer.out


def test_runs_of_a_sweep_in_two_folders_are_refused(train: Callable[..., Any]) -> None:
    answer = train("-m", "seed=0,1", "runs_dir=runs/${seed}", "name=apart")
    assert answer.code == 2
    assert "belong in one folder, and not in runs/0/apart and runs/1/apart" in answer.err


def test_a_sweep_names_its_folder_after_itself(train: Callable[..., Any]) -> None:
    answer = train("-m", "placement=pre,post", small=True)
    assert answer.code == 0
    [folder] = Path("runs").iterdir()
    assert folder.name.startswith("placement_")
    assert not any(character.isspace() for character in folder.name)
    assert not [path for path in Path().iterdir() if path.name in ("outputs", "multirun")]


def test_the_same_run_twice_is_one_run(train: Callable[..., Any]) -> None:
    answer = train("-m", "trainer.log_every=1,2", "name=twice")
    assert answer.code == 0
    assert len(results(Path("runs/twice"))) == 1
    assert "the same run" in answer.out


def test_what_is_edited_while_a_sweep_runs_does_not_leak_into_it(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    choice = tmp_path / "mine" / "optimizer" / "mine.yaml"
    choice.parent.mkdir(parents=True)
    choice.write_text("name: adamw\nlr: 1e-3\n")
    Path("editing.py").write_text(
        f"""
from pathlib import Path
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "editing", NormOptions)
class Editing(RMSNorm):
    \"\"\"RMSNorm that edits a configuration file.\"\"\"
    def forward(self, x):
        Path({str(choice)!r}).write_text("name: adamw\\nlr: 9e-1\\n")
        return super().forward(x)
"""
    )
    answer = train(
        "-m",
        "seed=0,1",
        "norm=rmsnorm,editing",
        "optimizer=mine",
        "code_paths=[editing.py]",
        f"hydra.searchpath=[file://{tmp_path}/mine]",
        "name=edited",
    )
    assert answer.code == 0, answer.err
    assert "9e-1" in choice.read_text()
    assert {r["learning_rate"] for r in results(Path("runs/edited"))} == {1e-3}
    planned = json.loads(Path("runs/edited/sweep.json").read_text())["runs"]
    assert {row["config_hash"] for row in planned} == {
        r["config_hash"] for r in results(Path("runs/edited"))
    }


def test_a_run_that_another_process_trains_is_left_to_it(train: Callable[..., Any]) -> None:
    assert train("-m", "seed=0,1", "name=shared").code == 0
    for path in Path("runs/shared").glob("*-s1-*/result.json"):
        path.unlink()
    [directory] = Path("runs/shared").glob("*-s1-*")
    with FileLock(directory / ".lock"):
        answer = train("-m", "seed=0,1", "name=shared")
    assert "another process is training it" in answer.out
    assert answer.code == 1
    assert not (directory / "result.json").exists()


def test_a_runs_process_reads_no_code_that_was_edited_since() -> None:
    script = Path(__file__).resolve().parents[2] / "scripts" / "train.py"
    code = (
        f"import runpy, sys; runpy.run_path({str(script)!r}, run_name='__mp_main__');"
        "assert not [name for name in sys.modules if name.startswith('lm_experiments')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_failed_run_is_tried_again_and_stops_the_sweep_where_asked(
    train: Callable[..., Any],
) -> None:
    Path("broken.py").write_text(BROKEN)
    sweep = ("-m", "norm=raising,rmsnorm", "code_paths=[broken.py]")
    answer = train(*sweep, "retries=2", "name=again")
    assert answer.code == 1
    assert "trying again (2 of 2)" in answer.out
    [log] = Path("runs/again").glob("raising*/train.log")
    assert log.read_text().count("Traceback") == 3

    answer = train(*sweep, "on_failure=stop", "name=stops", "resources.at_once=1")
    assert answer.code == 1
    assert [r["arm"] for r in results(Path("runs/stops"))] == ["raising"]
    assert "Stopped. The same command continues" in answer.out
    refused = train(*sweep, "on_failure=panic")
    assert "it can be continue or stop" in refused.err


def test_values_of_a_range_are_as_people_write_them(train: Callable[..., Any]) -> None:
    answer = train("-m", "optimizer.lr=range(0.001,0.01,0.004)", "plan=true")
    assert answer.code == 0, answer.err
    assert "lr=0.009 " in answer.out and "lr=0.0090" not in answer.out


def test_numbers_of_the_environment(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDTH", "24")
    monkeypatch.setenv("SMOOTH", "1e-6")
    words = ["model.norm.eps=${oc.env:SMOOTH}", "model.document_mask=${oc.env:MASK,true}"]
    answer = train("model.d_model=${oc.env:WIDTH,16}", *words, "name=20240913", "plan=true")
    assert answer.code == 0, answer.err
    assert "model.d_model='many' is not a whole number" in (
        train("model.d_model=${oc.env:NONE,many}").err
    )


def test_runs_may_lie_in_the_home_folder(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    answer = train('runs_dir="~/x"')
    assert answer.code == 0, answer.err
    assert list(tmp_path.glob("home/x/single/*/result.json"))
    assert not Path("~").exists()


@pytest.mark.parametrize("word", ["plan=true,false", "name=a,b", "resources.gpus=1,2"])
def test_what_holds_for_a_sweep_has_one_value(word: str, train: Callable[..., Any]) -> None:
    answer = train("-m", word)
    assert answer.code == 2
    assert "holds for all runs of a sweep; type a command for each, with" in answer.err
