"""The pages of the documentation, taken apart: fenced blocks, commands, links and anchors."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.commands import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# Why a block of commands cannot run in a test; written before it as <!-- not run: needs ... -->.
NEEDS = ("a GPU", "the network", "SLURM", "a W&B key", "a Ray cluster", "files of yours")
_FENCE = re.compile(r"(`{3,})\s*(\w*)(?:\s+title=\"([^\"]+)\")?\s*$")
_MARK = re.compile(r"<!-- not run: needs (.+) -->$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: as written after the fence; empty without one.
        title: the file that the block is, empty for none.
        needs: what it needs that a test does not have; empty where it can run.
    """

    page: Path
    line: int
    language: str
    title: str
    needs: str
    text: str

    @property
    def where(self) -> str:
        """The page and the line of the fence."""
        return f"{self.page.name}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each of its commands."""
        joined = self.text.replace("\\\n", " ").splitlines()
        return [words for line in joined if (words := shlex.split(line, comments=True))]


def blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of all pages in these languages, or all of them."""
    found = [block for page in PAGES for block in _blocks(page)]
    return [block for block in found if not languages or block.language in languages]


def write_files(folder: Path) -> None:
    """Write every block that is a file, as a reader would."""
    for block in blocks():
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Yield each link and image of a page outside of code: its line, and where it points."""
    for number, line in _prose(page):
        for found in _LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            yield number, found[1]


def anchors(page: Path) -> list[str]:
    """Return the anchors of a page's headings: those of the site, or GitHub's for other files."""
    titles = [line.lstrip("# ") for _, line in _prose(page) if re.match(r"#{1,6} ", line)]
    slug = _site_slug if page.parent.name == "docs" else _github_slug
    return [slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)) for title in titles]


def _site_slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _github_slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def _prose(page: Path) -> Iterator[tuple[int, str]]:
    inside = {n for b in _blocks(page) for n in range(b.line, b.line + b.text.count("\n") + 2)}
    lines = page.read_text(encoding="utf-8").splitlines()
    yield from ((n, line) for n, line in enumerate(lines, 1) if n not in inside)


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        if opened := _FENCE.match(lines[number]):
            end = lines.index(opened[1], number + 1)
            mark = _MARK.match(lines[number - 1]) if number else None
            text = "".join(f"{line}\n" for line in lines[number + 1 : end])
            needs = mark[1] if mark else ""
            yield Block(page, number + 1, opened[2], opened[3] or "", needs, text)
            number = end
        number += 1
