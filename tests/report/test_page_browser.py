"""report.html in a real browser: no errors, no network, on a phone, in the dark, by keyboard."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import SweepFactory, result_of
from synthetic_studies import StudyFactory

from lm_experiments.report import build_table, collect
from lm_experiments.report.page import page_html
from lm_experiments.rundir.metrics import Row, write_rows
from lm_experiments.rundir.names import DIAGNOSTICS, SAMPLES

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install 'lm_experiments[browser]'"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]
LAYERS = ("gradient_norm", "update_ratio")
HOSTILE = "<b>bold</b> <img src=x onerror=\"window.hit=1\"> </script> %{y} $x^2$ & 'arm'"
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        # A container's root has no sandbox.
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open the page of a sweep's folder; whatever it complains of fails the test."""
    said: list[str] = []
    pages = []

    def _open(root: Path, width: int = 1440, scheme: str = "light") -> Any:
        file = tmp_path / "report.html"
        file.write_text(page_html(build_table(collect(root))), encoding="utf-8")
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=width < 600
        )
        pages.append(page)
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_function(
            "[...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.main-svg'))"
        )
        said.remove(file.as_uri())
        return page

    yield _open
    for page in pages:
        page.close()
    assert not said


@pytest.fixture
def root(study: StudyFactory) -> Path:
    """A tuned study with a hostile arm, curves, samples, and an arm that failed."""
    study.tuned = study.curves = True
    study.arms[HOSTILE] = ["ffn=silu", "norm=none"]
    study.broken[("nope", 1)] = {"outcome": "diverged", "outcome_step": 300}
    folder = study.whole()
    for directory in folder.glob("*-s0-*"):
        write_rows(directory / SAMPLES, [{"step": 9, "prompt": HOSTILE, "text": HOSTILE * 9}])
        parts = {f"{key}/{part}": 1.0 + part for key in LAYERS for part in range(4)}
        write_rows(directory / DIAGNOSTICS, [{"step": 9, **parts}])
    return folder


def test_another_statistic_of_the_layers_is_drawn(opened: Any, root: Path) -> None:
    page = opened(root)
    assert "baseline" in lines(page, "layers")
    page.select_option("[name=statistic]", LAYERS[1])
    title = "document.querySelector('[data-figure=layers]').layout.yaxis.title.text"
    assert page.evaluate(title) == LAYERS[1]


def lines(page: Any, figure: str = "curves") -> list[str]:
    """The names of the lines that Plotly draws in a figure."""
    found: list[str] = page.evaluate(
        "name => document.querySelector(`[data-figure=${name}]`).data"
        ".filter(trace => trace.hoverinfo !== 'skip').map(trace => trace.text)",
        figure,
    )
    return found


def test_it_is_drawn_without_errors_and_without_network(opened: Any, root: Path) -> None:
    page = opened(root)
    assert page.locator(".plot .main-svg").count() >= 3
    assert set(lines(page)) >= {"baseline", "nope"}


def test_names_stay_text(opened: Any, root: Path) -> None:
    page = opened(root)
    assert page.evaluate("window.hit") is None
    assert page.locator("img, b").count() == 0
    assert page.locator("tbody th", has_text=HOSTILE).count() >= 1
    labels = page.locator("[data-figure=forest] .ytick").all_text_contents()
    assert any(label.startswith("<b>bold</b> <img src=x") for label in labels)


def test_arms_are_switched_on_and_off_by_keyboard(opened: Any, root: Path) -> None:
    page = opened(root)
    before = lines(page)
    box = page.locator("#toggles input").first
    box.focus()
    page.keyboard.press("Space")
    assert lines(page) == before[1:]
    page.get_by_role("button", name="none").click()
    assert lines(page) == []
    page.get_by_role("button", name="all", exact=True).click()
    assert lines(page) == before


def test_curves_have_other_axes_and_measures(opened: Any, sweep: SweepFactory) -> None:
    rows = [{"step": step, "train/loss": 5.0 / step, "val/loss": 6.0 / step} for step in (1, 2, 4)]
    result = result_of("base", 0, 1.5, steps=4, tokens=4000, seconds=8.0, train_flops=400)
    sweep.run("base", 0, result=result, metrics=rows)
    page = opened(sweep.plan())

    def _drawn() -> Any:
        return page.evaluate(
            "(({data, layout}) => [data[0].x, data[0].y, layout.xaxis.type, layout.yaxis.type])"
            "(document.querySelector('[data-figure=curves]'))"
        )

    assert _drawn() == [[1, 2, 4], [6, 3, 1.5], "linear", "linear"]
    page.select_option("[name=axis]", "seconds")
    page.select_option("[name=measure]", "train/loss")
    page.check("[name=logx]")
    assert _drawn() == [[2, 4, 8], [5, 2.5, 1.25], "log", "linear"]
    page.select_option("[name=axis]", "flops")
    assert _drawn()[0] == [100, 200, 400]


def test_the_table_is_sorted_either_way(opened: Any, root: Path) -> None:
    page = opened(root, 390)
    head = page.locator("table").first.locator("thead th", has_text="parameters").first
    loss = page.locator("table").first.locator("thead th", has_text="val loss at own best")
    column = loss.evaluate("head => head.cellIndex")

    def _losses() -> list[float]:
        cells = page.locator("table").first.locator(f"tbody tr td:nth-child({column + 1})")
        return [float(text) for text in cells.all_text_contents() if text != "-"]

    loss.locator("button").click()
    assert loss.get_attribute("aria-sort") == "ascending"
    assert _losses() == sorted(_losses())
    loss.locator("button").press("Enter")
    assert loss.get_attribute("aria-sort") == "descending"
    assert _losses() == sorted(_losses(), reverse=True) != sorted(_losses())
    assert head.get_attribute("aria-sort") == "none"


def test_the_command_is_copied(opened: Any, root: Path) -> None:
    page = opened(root)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy this command").click()
    page.locator("#copied", has_text="Copied.").wait_for(state="attached")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("python scripts/train.py -m study=norms")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_and_axe_finds_no_serious_fault(
    opened: Any, root: Path, width: int, scheme: str
) -> None:
    page = opened(root, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is (scheme == "light")
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="needs axe-playwright-python: pip install 'lm_experiments[browser]'",
    )
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    found = axe.Axe().run(page).response["violations"]
    serious = [
        (each["id"], each["nodes"][0]["html"])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious


def test_print_is_on_white_paper(opened: Any, root: Path) -> None:
    page = opened(root, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    shown = page.locator("[data-figure=curves]").evaluate(
        "plot => [plot.layout.font.color, plot.layout.width]"
    )
    assert shown == ["#1d2126", 680]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.pdf().startswith(b"%PDF")


def _long(loss: float, seed: int) -> Iterator[Row]:
    noise = random.Random(f"{loss} {seed}")
    for step in range(1, 2001):
        falling = loss + (8.3 - loss) * math.exp(-step / 150)
        row = {"step": step, "train/loss": falling + noise.gauss(0, 0.05), "tokens": 4096 * step}
        yield row | ({"val/loss": falling + noise.gauss(0, 0.004)} if step % 20 == 0 else {})


def test_sixty_runs_of_2000_rows_stay_small(opened: Any, sweep: SweepFactory) -> None:
    for arm in range(60):
        loss = 3.0 + 0.01 * arm
        result = result_of(f"arm {arm}", 0, loss, steps=2000)
        sweep.run(f"arm {arm}", 0, result=result, metrics=_long(loss, arm))
    page = opened(sweep.plan())
    size = page.evaluate("new Blob([document.documentElement.outerHTML]).size")
    data = page.evaluate("document.getElementById('data').textContent.length")
    assert data < MEGABYTE and size < 6 * MEGABYTE
    page.get_by_role("button", name="all", exact=True).click()
    assert len(lines(page)) == 60
