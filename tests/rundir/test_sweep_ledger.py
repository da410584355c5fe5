"""The ledger of a sweep: only appended to, chained, and read back as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_experiments.errors import InputError
from lm_experiments.rundir.ledger import (
    COMMAND,
    DECLARED,
    LOOK,
    TAKEN,
    Declaration,
    Look,
    Taken,
    append,
    broken_links,
    declaration_of,
    read_ledger,
    record_command,
    taken_from,
    utc,
)
from lm_experiments.rundir.names import LEDGER
from lm_experiments.rundir.study import Study, Tuning
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow

SHOWN = Look(finished=4, planned=6, tested=True, baseline="base")
ARMS = {"base": [], "wide": ["model.d_model=64"]}


def sweep(*seeds: int) -> SweepRecord:
    rows = [
        SweepRow(arm, seed, f"{arm}-{seed}", None, own)
        for arm, own in ARMS.items()
        for seed in seeds
    ]
    return SweepRecord("it", "python scripts/train.py -m x", runs=rows)


def test_every_field_is_read_back(tmp_path: Path) -> None:
    said = Declaration("base", ARMS, [["wide", "base"]], [0, 1], [3, 5], 0.01, {"key": "x"})
    append(tmp_path, DECLARED, said)
    append(tmp_path, LOOK, SHOWN)
    origin = Taken("runs/a", {"base-0": utc(0)}, [["wide-0", "base-0"]], said)
    append(tmp_path, TAKEN, origin)
    declared, look, taken = read_ledger(tmp_path)
    assert taken_from([declared, look, taken]) == [origin]
    assert (declared.event, declared.declaration) == (DECLARED, said)
    assert (look.event, look.look) == (LOOK, SHOWN)
    assert declared.time.endswith("+00:00")


def test_a_command_declares_only_what_is_new(tmp_path: Path) -> None:
    record_command(tmp_path, sweep(0, 1))
    record_command(tmp_path, sweep(0, 1))
    assert [entry.event for entry in read_ledger(tmp_path)] == [COMMAND, DECLARED, COMMAND]
    record_command(tmp_path, sweep(0, 1, 2))
    assert read_ledger(tmp_path)[-1].declaration.seeds == [0, 1, 2]


def test_a_study_declares_its_contrasts_rule_and_tuning() -> None:
    seeds = list(range(5))
    study = Study("it", "base", ARMS, seeds=seeds, looks=[3, 5], margin=0.01)
    pairs = [["wide", "base"]]
    assert declaration_of(SweepRecord("it", study=study)) == Declaration(
        "base", ARMS, pairs, seeds, [3, 5], 0.01
    )
    scored = Study("it", "base", ARMS, primary="accuracy")
    assert declaration_of(SweepRecord("it", study=scored)).primary == "accuracy"
    tuned = Study("it", "base", ARMS, tune=Tuning(grid=[1e-3, 2e-3, 4e-3], seeds=[7]))
    assert declaration_of(SweepRecord("it", study=tuned)).tuned == {
        "key": "optimizer.lr",
        "grid": "0.001, 0.002, 0.004",
        "seeds": "7",
    }


@pytest.mark.parametrize("edit", ["change", "remove", "insert"])
def test_a_line_that_was_edited_is_found(tmp_path: Path, edit: str) -> None:
    for seeds in ([0], [0, 1], [0, 1, 2]):
        record_command(tmp_path, sweep(*seeds))
    assert broken_links(tmp_path) == []
    path = tmp_path / LEDGER
    lines = path.read_text().splitlines()
    if edit == "change":
        lines[1] = lines[1].replace('"seeds": [0]', '"seeds": [0, 1, 2]')
    elif edit == "remove":
        del lines[2]
    else:
        lines.insert(2, lines[0])
    path.write_text("\n".join(lines) + "\n")
    assert broken_links(tmp_path)


def test_a_line_that_a_full_disk_cut_short_is_told_and_spoils_no_other(tmp_path: Path) -> None:
    append(tmp_path, LOOK, SHOWN)
    with (tmp_path / LEDGER).open("a") as file:
        file.write('{"event": "lo')
    append(tmp_path, LOOK, SHOWN)
    assert [len(line) > 20 for line in (tmp_path / LEDGER).read_text().splitlines()] == [
        True,
        False,
        True,
    ]
    with pytest.raises(InputError, match=r"line 2 is no entry.*exploratory without it"):
        read_ledger(tmp_path)


def test_no_ledger_has_no_entries(tmp_path: Path) -> None:
    assert read_ledger(tmp_path) == [] == broken_links(tmp_path)


def test_numbers_that_json_lacks_are_words(tmp_path: Path) -> None:
    append(tmp_path, COMMAND, {"command": "x", "at": float("nan")})  # type: ignore[dict-item]
    assert json.loads((tmp_path / LEDGER).read_text())["details"]["at"] == "nan"
