"""The gallery of published claims, made from a study that the real writers wrote."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_ladders import climbing
from synthetic_studies import StudyFactory

from lm_experiments.cli.gallery import main
from lm_experiments.errors import InputError
from lm_experiments.report import write_report
from lm_experiments.report.gallery import write_gallery
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.reproduced import Reproduction, RetrainedCell, write_reproduction

GU = Source("Gu et al. 2025", "table 5", "60M", 5e9, 1, difference=0.08)
NARANG = Source("Narang et al. 2021", "table 1", value="2.167 against 2.182")
CLAIMS = [
    Claim("Without positions it is worse.", "worse", ["nope", "baseline"], sources=[GU]),
    Claim("It needs rope.", "worse", ["rope", "baseline"], sources=[GU]),
    Claim(
        "LayerNorm | RMSNorm differ.",
        "better",
        ["layernorm", "baseline"],
        sources=[NARANG],
        why="A small model.",
    ),
]


@pytest.fixture
def shown(study: StudyFactory) -> StudyFactory:
    """A finished study with claims, whose table has been shown."""
    study.published = CLAIMS
    for arm in study.arms:
        for seed in study.seeds:
            study.changes[arm, seed] = {"cpu_seconds": 60.0}
    write_report(study.whole())
    return study


def cards(page: str) -> list[str]:
    return page.split("\n## All differences")[0].split("\n## ")[1:]


def another(shown: StudyFactory) -> StudyFactory:
    """The same study in another folder, whose table has been shown."""
    short = replace(shown, root=shown.root.with_name("short"), entries=[])
    write_report(short.whole())
    return short


def test_a_card_has_both_scales_and_those_that_do_not_hold_come_first(
    shown: StudyFactory, tmp_path: Path
) -> None:
    page, table, _, picture = write_gallery([shown.root], tmp_path / "gallery")
    assert table.read_bytes() == (shown.root / "table.json").read_bytes()
    assert picture.name == "norms.png" and picture.stat().st_size > 1000
    text = page.read_text()
    first, second, third = cards(text)
    assert first.startswith("1. LayerNorm \\| RMSNorm differ.")
    assert "**does not hold at this scale**" in first
    assert "| Narang et al. 2021 | not noted | not noted | not stated | 2.167 against" in first
    assert "Why it may differ: A small model." in first
    assert second.startswith("2. Without positions") and "**holds at this scale**" in second
    assert "| Gu et al. 2025 | 60M | 5B | 1 | +0.08 nats/token | table 5 |" in second
    assert "| **here** | 4.21M parameters | 4.1M | 5 | +0.0793 [+0.0741, +0.0845]" in second
    # 25 runs of half a minute on two threads.
    assert "25 runs took 25 min of CPU time" in second
    assert "Not tuned: learning rate 0.003." in second
    assert "python scripts/train.py -m study=norms\n" in second
    digest = hashlib.sha256((shown.root / "table.json").read_bytes()).hexdigest()
    assert digest in second and "No cell of it has been trained again yet." in second
    assert "**not testable here: no arm 'rope' was trained**" in third
    assert "3 claims (does not hold 1, holds in sign 0, holds 1, not resolved 0, not " in text
    again, *_ = write_gallery([shown.root], tmp_path / "again")
    assert again.read_text() == text


def test_a_claim_at_two_budgets_has_one_card_and_the_verdict_of_the_longer(
    shown: StudyFactory, tmp_path: Path
) -> None:
    short = replace(shown, root=shown.root.with_name("short"), entries=[])
    short.changes = {cell: {**known, "tokens": 1000} for cell, known in shown.changes.items()}
    short.losses = {("nope", seed): short.loss("baseline", seed) - 0.1 for seed in short.seeds}
    write_report(short.whole())
    page, *others = write_gallery([short.root, shown.root], tmp_path / "gallery")
    second = cards(page.read_text())[1]
    assert len(others) == 6
    assert second.startswith("2. Without positions") and "**holds at this scale**" in second
    mine = [line for line in second.splitlines() if line.startswith("| **here**")]
    assert "| its runs: holds |" in mine[0] and "| 4.1M |" in mine[0]
    assert "| its runs: does not hold |" in mine[1] and "| 1k |" in mine[1]
    assert "study=norms\n" in second and "study=short\n" in second


def test_a_claim_on_a_ladder_shares_the_card_of_the_study_without_one(
    study: StudyFactory, tmp_path: Path
) -> None:
    claim = Claim("It is worse.", "worse", ["SiLU", "SwiGLU"], sources=[NARANG])
    ladder = climbing(study, {"SiLU": (0.2, 0.2, 0.2)})
    assert ladder.ladder is not None
    ladder.published = [claim.called(ladder.ladder.rungs[-1].arms)]
    write_report(ladder.whole())
    flat = StudyFactory(study.root.with_name("flat"), baseline="SwiGLU", published=[claim])
    flat.arms = {"SwiGLU": [], "SiLU": ["ffn=silu"]}
    write_report(flat.whole())
    page, *_ = write_gallery([ladder.root, flat.root], tmp_path / "gallery")
    [card] = cards(page.read_text())
    assert "study=norms\n" in card and "study=flat\n" in card
    assert "| **here** | 4.21M parameters |" in card and "unknown" not in card


def test_the_last_cell_of_this_very_table_is_told(shown: StudyFactory, tmp_path: Path) -> None:
    digest = hashlib.sha256((shown.root / "table.json").read_bytes()).hexdigest()
    for name, table, time, cell in (
        ("one", digest, "2026-01-01T00:00:00+00:00", "nope s0"),
        ("two", digest, "2026-02-01T00:00:00+00:00", "silu s1"),
        ("other", "another", "2026-03-01T00:00:00+00:00", "silu s2"),
    ):
        folder = shown.root.with_name(name)
        folder.mkdir()
        cells = [RetrainedCell(cell, 3.0, 3.0, "bit-equal")]
        write_reproduction(folder, Reproduction(table, time, cells))
    page, *_ = write_gallery([shown.root], tmp_path / "gallery")
    assert "Last cell trained again: silu s1, bit-equal, on 2026-02-01." in page.read_text()


def test_a_tuned_study_says_so_and_counts_its_trials(study: StudyFactory, tmp_path: Path) -> None:
    study.published, study.tuned = CLAIMS[:1], True
    write_report(study.whole())
    page, *_ = write_gallery([study.root], tmp_path / "gallery")
    [card] = cards(page.read_text())
    assert "![Validation loss by the tuned key](norms.sensitivity.png)" in page.read_text()
    assert "Each arm at its own best optimizer.lr" in card
    assert "runs, whose time is not known." in card


def test_what_is_no_exhibit_is_refused(
    shown: StudyFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gallery"
    with pytest.raises(InputError, match="Two sweeps are called norms; rename"):
        write_gallery([shown.root, shown.root], out)
    table = shown.root / "table.json"
    table.write_text(table.read_text().replace("3.2", "3.1", 1))
    with pytest.raises(InputError, match="is not the table of the runs beside it; make it"):
        write_gallery([shown.root], out)
    with pytest.raises(InputError, match="gallery holds no studies yet; give the folder of one"):
        write_gallery([], out)
    bare = replace(shown, root=tmp_path / "bare", published=[], entries=[])
    assert main([str(bare.whole()), "--out", str(out)]) == 2
    assert "holds no published claims" in capsys.readouterr().err
    assert not out.exists()


def test_a_gallery_grows_without_the_folders_of_its_earlier_studies(
    shown: StudyFactory, tmp_path: Path
) -> None:
    short = replace(shown, root=shown.root.with_name("short"), entries=[], published=CLAIMS[:1])
    short.losses = {("nope", seed): short.loss("baseline", seed) - 0.1 for seed in short.seeds}
    write_report(short.whole())
    together, apart = tmp_path / "together", tmp_path / "apart"
    write_gallery([shown.root, short.root], together)
    write_gallery([shown.root], apart)
    write_gallery([short.root], apart)
    assert {path.name: path.read_bytes() for path in apart.iterdir()} == {
        path.name: path.read_bytes() for path in together.iterdir()
    }
    # One more budget of the same study takes the place of the first.
    write_gallery([short.root], apart)
    assert (apart / "index.md").read_bytes() == (together / "index.md").read_bytes()
    (apart / "norms.json").unlink()
    write_gallery([], apart)
    assert "study=norms\n" not in (apart / "index.md").read_text()


def test_a_cell_trained_again_later_is_told_of_a_study_whose_folder_is_gone(
    shown: StudyFactory, tmp_path: Path
) -> None:
    out = tmp_path / "gallery"
    write_gallery([shown.root], out)
    short = another(shown)
    digest = hashlib.sha256((out / "norms.json").read_bytes()).hexdigest()
    again = shown.root.with_name("again")
    again.mkdir()
    cells = [RetrainedCell("nope s0", 3.0, 3.0, "bit-equal")]
    write_reproduction(again, Reproduction(digest, "2026-01-01T00:00:00+00:00", cells))
    write_gallery([short.root], out)
    (again / "reproduced.json").unlink()
    page, *_ = write_gallery([short.root], out)
    assert "Last cell trained again: nope s0, bit-equal, on 2026-01-01." in page.read_text()


def test_a_damaged_gallery_is_refused_until_its_study_is_given_again(
    shown: StudyFactory, tmp_path: Path
) -> None:
    out = tmp_path / "gallery"
    write_gallery([shown.root], out)
    short = another(shown)
    table, origin = out / "norms.json", out / "norms.origin.json"
    table.write_text(table.read_text().replace("3.2", "3.1", 1))
    with pytest.raises(InputError, match=r"norms\.json is not the table that norms\.orig"):
        write_gallery([short.root], out)
    origin.write_text("{")
    with pytest.raises(InputError, match=r"norms\.origin\.json is damaged; put it back"):
        write_gallery([short.root], out)
    write_gallery([shown.root, short.root], out)
    assert "study=short\n" in (out / "index.md").read_text()


def test_the_command_names_what_it_wrote(
    shown: StudyFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gallery"
    assert main([str(shown.root), "--out", str(out)]) == 0
    assert capsys.readouterr().out == "".join(
        f"Wrote {out}/{name}\n"
        for name in ("index.md", "norms.json", "norms.origin.json", "norms.png")
    )
