"""The built wheel, installed beside the libraries only and used in a folder of the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from harness.commands import ROOT, SMALL, completed

from lm_experiments.benchmark.rounds import TRAIN

SOURCES = ("lm_experiments", "conf", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md")
SDIST = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"
# A user's own norm, as a file of theirs or as an installed package.
NORM = '''
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "{name}", NormOptions)
class Own(RMSNorm):
    """RMSNorm, doubled (no paper)."""
    def forward(self, x):
        return 2 * super().forward(x)
'''
# A study and a size of the user's own, found with --config-dir.
STUDY = """
name: own
baseline: rms
arms:
  rms: [norm=rmsnorm]
  doubled: [norm=doubled]
seeds: [0]
"""
SIZE = """
# @package model
d_model: 16
n_layers: 1
n_heads: 2
context_length: 16
d_ff: 32
"""


def called(command: list[str], folder: Path, seconds: float = 120) -> str:
    """Run a command in a folder, where it has to succeed; return its stdout."""
    # Nothing of the checkout may be found.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    environment["LM_EXPERIMENTS_CACHE"] = str(folder / "cache")
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network from an sdist of the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    sdist = called([sys.executable, "-c", SDIST], source).split()[-1]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    called([*pip, "--wheel-dir", "dist", f"dist/{sdist}"], source)
    [built] = (source / "dist").glob("*.whl")
    return built


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and an empty folder to type commands in."""

    environment: Path
    folder: Path

    @property
    def site_packages(self) -> Path:
        """Return the environment's folder of installed packages."""
        [found] = self.environment.glob("lib/python3*/site-packages")
        return found

    def type(self, *words: str) -> str:
        """Type ``lm-experiments ...``."""
        return called([str(self.environment / "bin/lm-experiments"), *words], self.folder)

    def train(self, *words: str) -> str:
        """Type a training command, on the CPU and with the smallest model."""
        defaults = [*SMALL, "data.path=words.txt", "trainer.accelerator=cpu"]
        flags = [word for word in words if word.startswith("-")]
        words = tuple(word for word in words if word not in flags)
        return self.type("train", *flags, *completed(words, defaults))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that sees this one's libraries, but not its lm_experiments."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    [site_packages] = folder.glob("lib/python3*/site-packages")
    libraries = Path(torch.__file__).parents[1]
    (site_packages / "libraries.pth").write_text(f"{libraries}\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(folder / "bin/python")]
    called([*pip, "install", "--no-deps", "--force-reinstall", str(wheel)], folder)
    return folder


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    (tmp_path / "words.txt").write_text("a line of a short text\n" * 250)
    return Installed(environment, tmp_path)


def test_the_wheel_holds_every_module_and_every_choice(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("lm_experiments/**/*.py")}
    choices = {f"lm_experiments/{path.relative_to(ROOT)}" for path in ROOT.glob("conf/**/*.yaml")}
    assert len(choices) > 20
    page = {f"lm_experiments/report/page/page.{kind}" for kind in ("html", "css", "js")}
    assert modules | choices | page | {"lm_experiments/py.typed"} <= names
    assert {name for name in names if name.endswith(".yaml")} == choices


@pytest.mark.slow
def test_a_sweep_and_its_table_in_an_empty_folder(installed: Installed) -> None:
    where = [str(installed.environment / "bin/python"), "-c"]
    code = "import lm_experiments; print(lm_experiments.__file__)"
    assert Path(called([*where, code], installed.folder)).is_relative_to(installed.environment)

    out = installed.train("-m", "placement=pre,post", "name=two")
    assert "2 done, 0 failed" in out
    table = installed.type("table", "runs/two")
    assert "pre" in table and "post" in table
    written = (installed.folder / "runs/two/table.md").read_text()
    assert "2 arms, 2 of 2 runs finished (2 ok)." in written
    assert "lm-experiments train -m" in (installed.folder / "runs/two/sweep.json").read_text()
    assert "2 done" in installed.type("status", "runs/two")
    [run] = installed.folder.glob("runs/two/pre-s0-*")
    assert installed.type("generate", str(run), "--prompt", "a", "--tokens", "3").startswith("a")


@pytest.mark.slow
def test_benchmarks_start_training_without_a_checkout(installed: Installed) -> None:
    python = str(installed.environment / "bin/python")
    assert "train position=learned" in called([python, *TRAIN[1:], "--help"], installed.folder)


@pytest.mark.slow
def test_a_users_own_choices_study_and_file(installed: Installed) -> None:
    conf = installed.folder / "conf"
    for name, text in {"study/own.yaml": STUDY, "size/mini.yaml": SIZE}.items():
        (conf / name).parent.mkdir(parents=True)
        (conf / name).write_text(text)
    (installed.folder / "doubled.py").write_text(NORM.format(name="doubled"))
    own = ("--config-dir=conf", "study=own", "size=mini", "name=own", "code_paths=[doubled.py]")
    out = installed.train("-m", *own)
    assert "2 done, 0 failed" in out
    table = (installed.folder / "runs/own/table.md").read_text()
    assert "doubled" in table and "rms" in table
    assert "norm=doubled" in installed.type("components", "norm", "code_paths=[doubled.py]")


@pytest.mark.slow
def test_a_package_that_offers_a_norm(installed: Installed) -> None:
    package = installed.site_packages
    information = package / "own_norms-1.0.dist-info"
    information.mkdir()
    (package / "own_norms.py").write_text(NORM.format(name="offered"))
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: own-norms\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[lm_experiments.components]\nown = own_norms\n")
    try:
        assert "norm=offered" in installed.type("components", "norm")
        assert "2 done, 0 failed" in installed.train("-m", "norm=offered,rmsnorm", "name=offered")
    finally:
        shutil.rmtree(information)
