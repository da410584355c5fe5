"""Where the configuration files are, in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path


def conf_dir() -> Path:
    """Return the folder of Hydra's groups, ``conf/`` at the top of a checkout.

    In a wheel it is ``lm_experiments/conf``, where ``setup.py`` copies it.
    """
    package = Path(__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"
