"""Copies ``conf/``, which stays at the top of the repository, into the built package."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConf(build_py):
    """Builds the package with ``conf/`` inside; an editable install reads the checkout's."""

    def run(self) -> None:
        """Copy the modules, then the configuration files."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "lm_experiments", "conf")
            # A build folder may hold files that are gone from the checkout.
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("conf", target)


setup(cmdclass={"build_py": BuildWithConf})
