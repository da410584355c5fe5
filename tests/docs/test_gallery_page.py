"""The gallery in the documentation: made from the tables beside it, each with the hash it names."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

from harness.commands import ROOT

from lm_experiments.report.exhibits import ORIGIN
from lm_experiments.report.gallery import write_gallery

GALLERY = ROOT / "docs" / "gallery"
PAGE = (GALLERY / "index.md").read_text(encoding="utf-8")
TABLES = [path for path in GALLERY.glob("*.json") if not path.name.endswith(ORIGIN)]


def test_every_table_has_the_hash_that_its_cards_name() -> None:
    named = set(re.findall(r"\[Its table\]\((.+?)\) has the SHA-256 `(\w{64})`", PAGE))
    kept = {(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in TABLES}
    assert named == kept and kept


def test_every_card_says_what_its_table_says() -> None:
    verdicts = dict(re.findall(r"\n## \d+\. (.+)\n\n\*\*(.+?)(?: at this scale)?\*\*", PAGE))
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in TABLES]
    found = [claim for table in tables for claim in table["published"]]
    assert verdicts.keys() == {claim["claim"]["claim"] for claim in found}
    for claim, verdict in verdicts.items():
        said = [each for each in found if each["claim"]["claim"] == claim]
        assert any(verdict.startswith(each["verdict"]) for each in said)


def test_the_page_is_what_its_tables_make(tmp_path: Path) -> None:
    again = tmp_path / "gallery"
    shutil.copytree(GALLERY, again)
    page, *_ = write_gallery([], again)
    assert page.read_text(encoding="utf-8") == PAGE


def test_pictures_exist_and_commands_name_no_folder_of_one_machine() -> None:
    pictures = re.findall(r"!\[.*?\]\((.+?)\)", PAGE)
    assert pictures and all((GALLERY / name).stat().st_size > 1000 for name in pictures)
    commands = re.findall(r"```bash\n(.+?)\n```", PAGE)
    assert commands and not [text for text in commands if "/home" in text or "=/" in text]
