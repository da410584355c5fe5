"""Pages of the documentation: links, anchors and images exist, and every page is in the site."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documentation import NEEDS, PAGES, anchors, blocks, links
from harness.commands import ROOT

EXTERNAL = ("https://", "http://", "mailto:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for line, target in links(page):
        if target.startswith(EXTERNAL):
            continue
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(f"{page.name}:{line}: {target}")
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_are_distinct(page: Path) -> None:
    assert len(set(anchors(page))) == len(anchors(page))


def test_pages_of_the_site_lead_to_pages_of_the_site() -> None:
    docs = ROOT / "docs"
    outside = [
        f"{page.name}:{line}: {target}"
        for page in PAGES
        if page.parent == docs
        for line, target in links(page)
        if not target.startswith(EXTERNAL)
        and not (docs / target.partition("#")[0]).resolve().is_relative_to(docs)
    ]
    assert not outside


def test_the_site_lists_every_page_once() -> None:
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([\w-]+\.md)"', text)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_every_block_says_its_language() -> None:
    assert not [block.where for block in blocks() if not block.language]


def test_a_block_that_is_not_run_says_why() -> None:
    for page in PAGES:
        marks = re.findall(r"<!-- not run.*", page.read_text(encoding="utf-8"))
        counted = [block for block in blocks() if block.page == page and block.needs]
        assert len(marks) == len(counted), f"{page.name}: a mark stands right before its block"
    unknown = [(block.where, block.needs) for block in blocks() if block.needs not in ("", *NEEDS)]
    assert not unknown, f"what a block needs is one of {', '.join(NEEDS)}"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="Python 3.10 has no zensical")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    assert {f"{page.stem}.html" for page in PAGES if page.parent.name == "docs"} <= {
        path.name for path in site.iterdir()
    }
    # A reader without a network sees the whole site.
    loaded = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(?:https?:)?//")
    assert not [path.name for path in site.glob("*.html") if loaded.search(path.read_text())]
