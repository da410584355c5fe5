"""Declared studies through the real command line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lm_experiments.rundir.results import Result, write_result
from lm_experiments.rundir.study import Tuning
from lm_experiments.study import planner

FILES = {
    "pair": """
name: pair
baseline: base
arms:
  base: []
  NoPE: [position=none]
  again: []
controls: [again]
seeds: [0, 1]
""",
    "noop": """
name: noop
baseline: base
arms:
  base: []
  nothing: [norm=same, 'code_paths=[same.py]']
seeds: [0]
""",
    "twins": """
name: twins
baseline: base
arms: {base: [], one: [ffn=relu], two: [ffn=relu]}
seeds: [0]
""",
    "far": """
name: far
baseline: base
arms:
  base: []
  window: [attention=sliding, model.attention.window=80]
  documents: [model.document_mask=true]
seeds: [0]
""",
    "ruled": """
name: ruled
baseline: base
arms: {base: [], NoPE: [position=none], near: [model.norm.eps=2e-5]}
seeds: {first: 3, more: 1, at_most: 4}
""",
    "wide": """
name: wide
baseline: base
arms:
  base: []
  window: [attention=sliding, model.attention.window=16]
seeds: [0]
""",
    "dropped": """
name: dropped
baseline: base
arms:
  base: []
  less: [model.dropout=0.1]
seeds: [0]
""",
    "tuned": """
name: tuned
baseline: base
arms: {base: [], NoPE: [position=none]}
seeds: [0]
tune: {key: optimizer.lr, grid: [1.0e-3, 2.0e-3, 4.0e-3], seeds: [7], limit: 1}
""",
}
SAME = '''
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "same", NormOptions)
class Same(RMSNorm):
    """RMSNorm under another name."""
'''


@pytest.fixture
def study(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run a study of `FILES`, which the test may edit first."""
    (tmp_path / "studies" / "study").mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / "studies" / "study" / f"{name}.yaml").write_text(text)

    def call(name: str, *arguments: str) -> Any:
        path = f"hydra.searchpath=[file://{tmp_path}/studies]"
        return train("-m", f"study={name}", path, "name=it", *arguments)

    return call


def record() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(Path("runs/it/sweep.json").read_text())
    return known


def losses() -> dict[tuple[str, int], float]:
    found = {}
    for path in Path("runs/it").glob("*/result.json"):
        result = json.loads(path.read_text())
        found[result["arm"], result["seed"]] = result["val_loss"]
    return found


def test_a_study_trains_its_arms_and_its_control_repeats_the_baseline(
    study: Callable[..., Any],
) -> None:
    answer = study("pair", "plan=true")
    assert answer.code == 0, answer.err
    assert "6 runs: 3 arms, seeds 0, 1" in answer.out
    assert not Path("runs").exists()

    answer = study("pair")
    assert answer.code == 0, answer.err
    found = losses()
    assert len(found) == 6
    for seed in (0, 1):
        assert found["again", seed] == found["base", seed]
        assert found["NoPE", seed] != found["base", seed]
    assert record()["study"]["baseline"] == "base"
    assert {row["role"] for row in record()["runs"]} == {"report"}

    more = study("pair", "seed=0,1,2")
    assert more.code == 0, more.err
    assert "6 done already, 3 to train" in more.out
    assert record()["study"]["seeds"] == [0, 1, 2]


def test_trials_choose_by_validation_and_the_table_reports_the_test(
    study: Callable[..., Any],
) -> None:
    favoured = "optimizer.lr is chosen on the validation text that is reported; type data.test_"
    assert favoured in study("tuned", "plan=true").out
    assert "is reported" not in study("pair", "plan=true").out
    held_out = ("data.test_fraction=0.2", "trainer.max_steps=3")
    assert "is reported" not in study("tuned", *held_out, "plan=true").out

    answer = study("tuned", *held_out)
    assert answer.code == 0, answer.err
    assert "test loss at own best" in answer.out
    table = json.loads(Path("runs/it/table.json").read_text())
    assert table["metric"] == "test_loss"
    for arm in table["arms"]:
        best = min(arm["trials"], key=lambda run: run["val_loss"])
        assert arm["chosen"]["value"] == best["setting"]["optimizer.lr"]
        [run] = arm["main"]["runs"]
        assert arm["main"]["statistics"]["mean"] == run["test_loss"] != run["val_loss"]


def test_the_best_trial_is_that_of_the_lowest_validation_loss(tmp_path: Path) -> None:
    tune = Tuning(grid=[1e-3, 2e-3, 4e-3])
    trials: list[Any] = []
    for value, loss in zip(tune.grid, (3.0, 2.0, 2.5), strict=True):
        directory = tmp_path / f"{value}"
        directory.mkdir()
        result = Result("done", "base", 7, outcome="ok", val_loss=loss, test_loss=5 - loss)
        write_result(directory, result)
        spec = SimpleNamespace(setting={tune.key: value})
        config = SimpleNamespace(arm="base")
        trials.append(SimpleNamespace(directory=directory, spec=spec, config=config))
    assert planner._chosen(tune, trials)["base"].value == 2e-3


def test_the_page_is_kept_as_runs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run := tmp_path / "base-s0-12345678").mkdir()
    write_result(run, Result("done", "base", 0))
    kept: list[Path] = []
    monkeypatch.setattr(planner.InterimPage, "refresh", lambda self, folder: kept.append(folder))
    assert planner.standing(run, 1, planner.InterimPage()) == "1 of 1 done"
    assert kept == [tmp_path]


def test_an_arm_that_changes_nothing_is_refused(study: Callable[..., Any]) -> None:
    Path("same.py").write_text(SAME)
    answer = study("noop", "code_paths=[same.py]")
    assert answer.code == 2
    assert "Arm 'nothing'" in answer.err
    assert "changes nothing" in answer.err


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_window_as_long_as_the_context_is_refused(
    study: Callable[..., Any], dropout: float
) -> None:
    """What drops out is the same for both arms, and is no difference between them."""
    answer = study("wide", f"model.dropout={dropout}", "plan=true")
    assert answer.code == 2, answer.text
    assert "Arm 'window'" in answer.err
    assert "changes nothing" in answer.err


def test_dropout_is_an_arm(study: Callable[..., Any]) -> None:
    for dropout in (0.0, 0.2):
        answer = study("dropped", f"model.dropout={dropout}", "plan=true")
        assert answer.code == 0, answer.err


@pytest.mark.parametrize(
    ("separator", "told"), [("short", "3 runs"), ("never there", "Arm 'documents' ")]
)
def test_what_shows_only_far_on_or_across_documents_is_no_arm_without_effect(
    study: Callable[..., Any], separator: str, told: str
) -> None:
    answer = study(
        "far",
        "plan=true",
        "model.context_length=96",
        f"data.separator={separator}",
        "data.split=tail",
    )
    assert told in answer.out + answer.err
    assert not Path("runs").exists()


def test_an_arm_equal_to_another_is_refused(study: Callable[..., Any]) -> None:
    answer = study("twins")
    assert answer.code == 2
    assert "'two'" in answer.err
    assert "'one'" in answer.err
    assert "same run" in answer.err


def test_a_study_edited_after_it_started_is_refused(
    study: Callable[..., Any], tmp_path: Path
) -> None:
    assert study("pair").code == 0
    path = tmp_path / "studies" / "study" / "pair.yaml"
    path.write_text(path.read_text().replace("NoPE: [position=none]", "NoPE: [position=learned]"))
    for words in ((), ("plan=true",)):
        answer = study("pair", *words)
        assert answer.code == 2
        assert "before it was edited" in answer.err
        assert "position=learned" in answer.err


def test_an_edited_study_takes_the_place_of_one_of_which_no_run_has_begun(
    study: Callable[..., Any], tmp_path: Path
) -> None:
    assert study("pair", "seed=0").code == 0
    for run in Path("runs/it").glob("*-s0-*"):
        shutil.rmtree(run)
    path = tmp_path / "studies" / "study" / "pair.yaml"
    path.write_text(path.read_text().replace("NoPE: [position=none]", "learned: [ffn=relu]"))
    assert "0 done already, 3 to train" in study("pair", "seed=0", "plan=true").out
    answer = study("pair", "seed=0", "study.margin=0.5")
    assert answer.code == 0, answer.err
    assert "not begun or failed, gave place to this command's" in answer.out
    record = json.loads(Path("runs/it/sweep.json").read_text())
    assert [row["arm"] for row in record["runs"]] == ["base", "learned", "again"]
    assert (list(record["study"]["arms"]), record["study"]["margin"]) == (
        ["base", "learned", "again"],
        0.5,
    )


def test_an_arm_may_be_added_and_is_exploratory_where_results_were_shown(
    study: Callable[..., Any], tmp_path: Path
) -> None:
    seeds = "seed=0,1,2"
    assert study("pair", seeds).code == 0
    path = tmp_path / "studies" / "study" / "pair.yaml"
    path.write_text(path.read_text().replace("  again", "  relu: [ffn=relu]\n  again", 1))
    planned = study("pair", seeds, "plan=true")
    assert "9 done already, 3 to train" in planned.out
    answer = study("pair", seeds)
    assert answer.code == 0, answer.err
    assert "9 done already, 3 to train" in answer.out
    table = json.loads(Path("runs/it/table.json").read_text())
    assert list(table["rule"]["exploratory"]) == ["relu against base"]
    verdicts = {item["arm"]: item["verdict"] for item in table["contrasts"]}
    assert verdicts["relu"] == "exploratory"
    assert verdicts["NoPE"] in ("better", "worse", "unresolved")


def test_seeds_are_spent_by_rule_on_what_is_undecided(study: Callable[..., Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lm_experiments.launch.machine.cores", lambda: 8)
        answer = study("ruled", "plan=true", "resources.cpus=1")
    assert "9 runs: 3 arms, seeds 0, 1, 2" in answer.out
    assert "at most 12 runs to compare" in answer.out
    assert "the smallest wave is 2 runs and 8 train at once; with more: 4 a wave" in answer.out
    answer = study("ruled")
    assert answer.code == 0, answer.err
    [told] = re.findall("After 3 seeds, undecided: (.*); 4 seeds next", answer.out)
    assert {arm for arm, seed in losses() if seed == 3} == set(told.split(", "))
    assert "base" in told
    looks = [json.loads(x) for x in Path("runs/it/ledger.jsonl").read_text().splitlines()]
    assert [entry["event"] for entry in looks] == ["command", "declared", "look", "look"]
    table = json.loads(Path("runs/it/table.json").read_text())
    assert table["rule"]["looks"] == [3, 4]
    assert not table["rule"]["exploratory"]
    again = study("ruled")
    assert "0 to train" in again.out
    refused = study("ruled", "seed=0,1")
    assert refused.code == 2
    assert "does not go with the rule of study 'ruled'" in refused.err


def test_a_swept_key_beside_a_study_is_refused(study: Callable[..., Any]) -> None:
    answer = study("pair", "ffn=relu,swiglu")
    assert answer.code == 2
    assert "ffn is given several values beside a study" in answer.err


def test_an_unknown_override_of_an_arm_is_refused(
    study: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "studies" / "study" / "pair.yaml"
    path.write_text(path.read_text().replace("position=none", "position=nope"))
    answer = study("pair")
    assert answer.code == 2
    assert "position=nope is not known" in answer.err


def test_an_arm_is_explained_by_its_own_choices(study: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "studies" / "study" / "pair.yaml"
    own = "position=none, model.position.theta=1"
    path.write_text(path.read_text().replace("position=none", own))
    answer = study("pair")
    assert answer.code == 2
    assert "Arm 'NoPE': position=none has no option theta; it has none." in answer.err
    path.write_text(path.read_text().replace(own, "~position"))
    assert "Arm 'NoPE': ~position: nothing can be taken out" in study("pair").err


def test_what_all_arms_share_is_not_blamed_on_one(
    study: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "studies" / "study" / "pair.yaml"
    path.write_text(f"{path.read_text()}overrides: [lr=1]\n")
    assert "error: lr is not a key; did you mean optimizer.lr?" in study("pair").err


def test_fields_of_a_study_are_set_by_words(study: Callable[..., Any]) -> None:
    words = ['+study.arms.new=["ffn=relu"]', "~study.arms.again", "study.controls=[]"]
    answer = study("pair", "study.seeds=[3]", *words, "plan=true")
    assert answer.code == 0, answer.err
    assert "3 runs: 3 arms, seed 3;" in answer.out
    assert "new" in answer.out and "again" not in answer.out
    answer = study("pair", "study.seeds={first:3,more:1,at_most:4}", "study.margin=1", "plan=true")
    assert "undecided arms go on after 3, 4 seeds" in answer.out
    assert (
        "study.margn is not a key; did you mean study.margin?" in study("pair", "study.margn=1").err
    )


def test_a_study_is_a_file_anywhere(train: Callable[..., Any]) -> None:
    Path("mine.yaml").write_text(FILES["twins"])
    answer = train("-m", "study=mine.yaml", "plan=true")
    assert answer.code == 2
    assert "'one'" in answer.err and "'two'" in answer.err and "same run" in answer.err
    assert "add -m: python scripts/train.py -m study=/" in train("study=./mine").err


def test_a_study_without_m_is_refused(train: Callable[..., Any]) -> None:
    answer = train("study=cs336")
    assert answer.code == 2
    assert "-m" in answer.err


def test_tuning_gives_every_arm_the_same_trials(study: Callable[..., Any]) -> None:
    answer = study("tuned")
    assert answer.code == 0, answer.err
    tune = record()["study"]["tune"]
    # Rates this low are all too low, so that the grid grows once, for both arms.
    assert tune["grid"] == [1e-3, 2e-3, 4e-3, 8e-3]
    rows = record()["runs"]
    trials = [(row["arm"], row["setting"]["optimizer.lr"]) for row in rows if row["role"] == "tune"]
    assert sorted(trials) == sorted((arm, lr) for arm in ("base", "NoPE") for lr in tune["grid"])
    assert len(tune["grid"]) * len(tune["seeds"]) == 4
    for arm in ("base", "NoPE"):
        assert tune["chosen"][arm] == {"value": 8e-3, "edge": "high", "failed": 0}
    assert {row["seed"] for row in rows if row["role"] == "tune"} == {7}
    assert {row["seed"] for row in rows if row["role"] != "tune"} == {0}
