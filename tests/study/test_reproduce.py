"""Cells of a table trained again: which are drawn, what is refused, and what is concluded."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.cli import reproduce as command
from lm_experiments.errors import InputError
from lm_experiments.launch.endings import Ending
from lm_experiments.rundir.atomic import write_json
from lm_experiments.rundir.reproduced import (
    Reproduction,
    RetrainedCell,
    read_reproduction,
    write_reproduction,
)
from lm_experiments.rundir.results import Result, read_result, write_result
from lm_experiments.study import plan, reproduce
from lm_experiments.study.reproduce import Cell, Retrained, draw_cells, result_lines
from lm_experiments.training import devices

Main = Callable[[Sequence[str]], int]

MY_NORM = '''
from lm_experiments.model import register
from lm_experiments.model.norms import RMSNorm, NormOptions

@register("norm", "trained_again", NormOptions)
class TrainedAgain(RMSNorm):
    """RMSNorm, by another name."""
'''


@pytest.fixture(scope="module")
def main() -> Main:
    """The command of ``scripts/reproduce.py``."""
    return command.main


def row(
    folder: Path, arm: str, seed: int, loss: float | None, status: str = "done"
) -> dict[str, Any]:
    """Return a run as the table has it, with its ``result.json`` in place."""
    run_dir = folder / f"{arm}-s{seed}"
    run_dir.mkdir(parents=True, exist_ok=True)
    result = Result(status, arm, seed, config_hash=f"{arm}{seed}", val_loss=loss)
    write_result(run_dir, result)
    known = {"seed": seed, "status": status, "val_loss": loss, "config_hash": result.config_hash}
    return {"directory": run_dir.name, **known}


def table(folder: Path, arms: Sequence[str], seeds: int = 3, baseline: str = "base") -> Path:
    """Write a table of the arms, whose losses are 3.0, 3.1, 3.2 by seed."""
    rows = {arm: [row(folder, arm, seed, 3 + seed / 10) for seed in range(seeds)] for arm in arms}
    return write_table(folder, rows, baseline)


def write_table(folder: Path, rows: dict[str, list[dict[str, Any]]], baseline: str) -> Path:
    arms = [{"arm": arm, "main": {"runs": runs}} for arm, runs in rows.items()]
    path = folder / "table.json"
    write_json(path, {"format": 1, "baseline": baseline, "arms": arms})
    return path


def cell(*losses: float, **known: Any) -> Cell:
    result = Result("done", "arm", 0, **known)
    return Cell("arm", 0, Path("arm-s0"), "hash", losses[0], losses, result)


def test_the_baseline_is_drawn_with_distinct_other_arms_as_the_seed_says(tmp_path: Path) -> None:
    path = table(tmp_path, ["a", "b", "base", "c", "d", "e"])
    draws = [[c.label for c in draw_cells(path, 3, seed)] for seed in range(20)]
    assert draws[0] == [c.label for c in draw_cells(path, 3, 0)]
    for labels in draws:
        assert labels[0].startswith("base")
        assert len({label.split()[0] for label in labels}) == 3
    drawn = {label for labels in draws for label in labels}
    assert {label.split()[0] for label in drawn} == {"a", "b", "base", "c", "d", "e"}
    assert {label.split()[1] for label in drawn} == {"s0", "s1", "s2"}
    assert len({tuple(labels) for labels in draws}) > 10


def test_an_arm_more_does_not_change_what_is_drawn_of_the_others(tmp_path: Path) -> None:
    few = [c.label for c in draw_cells(table(tmp_path, ["base", "a", "b"]), 9, 4)]
    more = [c.label for c in draw_cells(table(tmp_path, ["new", "base", "a", "b"]), 9, 4)]
    assert len(few) == 3
    assert [label for label in more if not label.startswith("new")] == few


def test_runs_without_a_loss_are_not_drawn(tmp_path: Path) -> None:
    rows = {
        "base": [row(tmp_path, "base", 0, None, "failed"), row(tmp_path, "base", 1, 3.5)],
        "blown": [row(tmp_path, "blown", 0, math.nan)],
    }
    [only] = draw_cells(write_table(tmp_path, rows, "base"), 5, 0)
    assert (only.label, only.losses) == ("base s1", (3.5,))
    del rows["base"]
    with pytest.raises(InputError, match="no run that ended with a loss"):
        draw_cells(write_table(tmp_path, rows, "base"), 5, 0)


def test_tables_that_cannot_be_used_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = table(tmp_path, ["base"], seeds=1)
    with pytest.raises(InputError, match="--cells 0 must be 1 or more"):
        draw_cells(path, 0, 0)
    with pytest.raises(InputError, match="There is no table"):
        draw_cells(tmp_path / "tabel.json", 1, 0)
    row(tmp_path, "base", 0, 2.5)
    with pytest.raises(InputError, match=r"a loss of 3\.0 for .* says 2\.5; make it again"):
        draw_cells(path, 1, 0)
    shutil.rmtree(tmp_path / "base-s0")
    with pytest.raises(InputError, match="has no result any more"):
        draw_cells(path, 1, 0)
    for text in ("{", "[]", '{"format": 2}', '{"format": 1, "arms": [{}]}'):
        path.write_text(text)
        with pytest.raises(InputError, match="is not a table of this program"):
            draw_cells(path, 1, 0)


@pytest.mark.parametrize(
    ("losses", "loss", "verdict", "rule"),
    [
        # The standard deviation of these three is 0.1.
        ((3.0, 3.1, 2.9), 3.0, "bit-equal", "2 sd of 3 seeds"),
        ((3.0, 3.1, 2.9), 3.19, "within noise", "2 sd of 3 seeds"),
        ((3.0, 3.1, 2.9), 2.79, "differs", "2 sd of 3 seeds"),
        ((3.0, 9.0), 3.014, "within noise", "0.5% of the loss, with 2 seeds"),
        ((3.0,), 3.016, "differs", "0.5% of the loss, with 1 seed"),
        ((3.0,), math.nan, "differs", "0.5% of the loss, with 1 seed"),
        ((3.0,), None, "failed", "0.5% of the loss, with 1 seed"),
    ],
)
def test_a_loss_is_held_against_the_noise_of_its_arm(
    losses: tuple[float, ...], loss: float | None, verdict: str, rule: str
) -> None:
    found = Retrained(cell(*losses), loss)
    assert (found.verdict, found.cell.noise_rule) == (verdict, rule)
    assert found.reproduced == (verdict in ("bit-equal", "within noise"))


def test_the_lines_say_whether_equal_bits_were_to_be_expected() -> None:
    then = cell(3.0, device="cpu", threads=2, versions={"torch": "2.13.0"}, code_hash="abc").result
    new = {"torch": "2.14.0"}
    now = dataclasses.replace(then, threads=4, versions=new, code_hash="abd")
    changes = reproduce._changes(then, now)
    assert changes == [
        "threads 2 then, 4 now",
        "torch 2.13.0 then, 2.14.0 now",
        "code abc then, abd now",
    ]
    assert reproduce._changes(then, dataclasses.replace(then)) == []
    elsewhere = "\n".join(result_lines([Retrained(cell(3.0), 3.001, tuple(changes))]))
    assert "+1.00e-03" in elsewhere
    assert "was not to be expected: threads 2 then, 4 now; torch" in elsewhere
    here = "\n".join(result_lines([Retrained(cell(3.0), 3.001)]))
    assert "bit-equality was to be expected" in here
    failed = "\n".join(result_lines([Retrained(cell(3.0), None, reason="OSError: full")]))
    assert "arm s0: OSError: full" in failed


def test_other_code_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"commit": "b" * 40, "dirty": False, "code_hash": "d" * 64}
    monkeypatch.setattr(reproduce, "provenance", lambda: now)
    same = cell(3.0, commit="c" * 40, dirty=True, code_hash="d" * 64)
    other = cell(3.0, commit="a" * 40, dirty=True, code_hash="e" * 64)
    assert reproduce.code_warnings([same]) == []
    assert reproduce.code_warnings([other, same, other]) == [
        "The table was made with commit aaaaaaaaaa with uncommitted changes, code eeeeeeeeee; "
        "this is commit bbbbbbbbbb, code dddddddddd."
    ]


def test_claims_are_printed_without_training(
    main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path, ["base", "a"])
    assert main([str(path), "--published"]) == 2
    assert "holds no published claims" in capsys.readouterr().err
    content = {**json.loads(path.read_text()), "published": [{"sentence": "Published: a claim."}]}
    path.write_text(json.dumps(content))
    files = sorted(tmp_path.rglob("*"))
    assert main([str(path), "--published"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Published: a claim.\n") and "none refutes" in out
    assert sorted(tmp_path.rglob("*")) == files
    path.write_text(json.dumps({**content, "published": [1]}))
    assert main([str(path), "--published"]) == 2
    assert "is not a table of this program" in capsys.readouterr().err


def test_the_record_of_cells_is_read_back(tmp_path: Path) -> None:
    found = Reproduction("hash", "now", [RetrainedCell("a s0", 3.0, math.inf, "differs")])
    write_reproduction(tmp_path, found)
    assert read_reproduction(tmp_path) == found
    (tmp_path / "reproduced.json").write_text("{}")
    with pytest.raises(InputError, match=r"reproduced\.json is damaged"):
        read_reproduction(tmp_path)


def test_the_new_folder_lies_beside_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reproduce.default_folder(Path("runs/grid/table.json")) == Path("runs/grid-reproduced")
    monkeypatch.chdir(tmp_path)
    new = tmp_path.with_name(f"{tmp_path.name}-reproduced")
    assert reproduce.default_folder(Path("table.json")) == new
    reproduce.check_fresh(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is there already; remove it, or name another"):
        reproduce.check_fresh(tmp_path)


def change_loss(folder: Path, by: float) -> None:
    """Let a finished sweep have recorded another loss, in its results and in its table."""
    for path in folder.glob("*/result.json"):
        result = read_result(path.parent)
        assert result is not None and result.val_loss is not None
        write_result(path.parent, dataclasses.replace(result, val_loss=result.val_loss + by))
    content = json.loads((folder / "table.json").read_text())
    for arm in content["arms"]:
        for run in arm["main"]["runs"]:
            run["val_loss"] += by
    (folder / "table.json").write_text(json.dumps(content))


def test_a_real_table_is_reproduced_to_the_last_bit(
    train: Callable[..., Any], main: Main, text_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = text_file.read_text()
    own_text = Path("own.txt")
    own_text.write_text(text)
    Path("again.py").write_text(MY_NORM)
    sweep = ("-m", "norm=rmsnorm,trained_again", "name=grid", f"data.path={own_text.resolve()}")
    answer = train(*sweep, "code_paths=[again.py]")
    assert answer.code == 0, answer.err
    folder, code = Path("runs/grid"), "code_paths=[again.py]"
    command = [str(folder / "table.json"), code]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    assert main(command) == 0
    out = capfd.readouterr().out
    assert out.count("bit-equal") == 2
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    record = read_reproduction(Path("runs/grid-reproduced"))
    assert record.table == hashlib.sha256((folder / "table.json").read_bytes()).hexdigest()
    assert [item.verdict for item in record.cells] == ["bit-equal"] * 2
    assert all(item.recorded == item.retrained for item in record.cells)
    new = sorted(path.parent.name for path in Path("runs/grid-reproduced").glob("*/result.json"))
    assert new == sorted(path.parent.name for path in folder.glob("*/result.json"))

    assert main(command) == 2
    assert "runs/grid-reproduced is there already" in capfd.readouterr().err

    one = [*command, "--cells", "1", "--out"]
    change_loss(folder, 1e-6)
    assert main([*one, "runs/near"]) == 0
    assert "within noise" in capfd.readouterr().out
    change_loss(folder, 1.0)
    assert main([*one, "runs/far"]) == 1
    assert "differs" in capfd.readouterr().out

    def refusal(*arguments: str) -> str:
        assert main([command[0], *arguments, "--out", "runs/refused"]) == 2
        error = capfd.readouterr().err
        assert len(error.strip().splitlines()) == 1
        return error

    assert "name their file again" in refusal()
    assert "else.py is not understood" in refusal(code, "else.py")
    Path("again.py").write_text(MY_NORM + "\n")
    assert "no longer what the table was made from" in refusal(code)
    own_text.write_text(text + "more\n" * 9)
    # A process reads a corpus once; the command is a new process each time.
    plan._prepared.cache_clear()
    assert "put the old text back" in refusal(code)
    assert not Path("runs/refused").exists()


def test_a_cell_is_trained_as_recorded_but_for_its_place_and_its_watchers(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train("name=one").code == 0
    [run_dir] = (path.parent for path in Path("runs/one").glob("*/result.json"))
    text = (run_dir / "config.yaml").read_text()
    (run_dir / "config.yaml").write_text(
        text.replace("logger:\n  name: none", "logger:\n  name: wandb").replace(
            "threads: 1", "threads: null"
        )
    )
    result = read_result(run_dir)
    assert result is not None and result.config_hash is not None
    cell = Cell("arm", 0, run_dir, result.config_hash, 3.0, (3.0,), result)
    config = reproduce._configuration(cell, Path("new/one"), ["unused.py"])
    assert (config.runs_dir, config.name, config.logger.name) == ("new", "one", "none")
    assert config.trainer.threads == result.threads == 1
    assert config.trainer.accelerator == result.device
    assert config.code_paths == []

    monkeypatch.setattr(devices, "_present", lambda: {"cuda": False, "mps": False, "cpu": True})
    on_a_gpu = dataclasses.replace(
        cell, result=dataclasses.replace(result, device="cuda", precision="bf16-mixed")
    )
    config = reproduce._configuration(on_a_gpu, Path("new/one"), [])
    assert (config.trainer.accelerator, config.trainer.precision) == ("auto", "bf16-mixed")

    run = reproduce.plan_cell(cell, Path("new/one"), [])
    monkeypatch.setattr(reproduce, "train", lambda task: Ending("failed"))
    found = reproduce.train_again(cell, run)
    assert (found.verdict, found.reason) == ("failed", f"{run_dir.name}: no result yet")
    assert (Path("new/one") / run_dir.name / "config.yaml").is_file()
