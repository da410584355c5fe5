"""Where ``scripts/train.py`` enters: Hydra with our choices, and errors as one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from . import sweeper
from .choices import load_code, load_installed, offer_components
from .explain import CONF, refuse
from .job import run_job


def main() -> None:
    """Run the command line: one run, or with ``-m`` a sweep; exits non-zero where one failed."""
    # Hydra prints errors itself unless this is set, and keeps them from us.
    debugging = "HYDRA_FULL_ERROR" in os.environ
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        load_installed()
        load_code(_code_paths(sys.argv[1:]))
        offer_components()
        sweeper.register()
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(run_job)()
    except (ValueError, HydraException, OmegaConfBaseException) as error:
        if debugging:
            raise
        refuse(error, sys.argv[1:])


def _code_paths(arguments: Sequence[str]) -> list[str]:
    """Return the files of ``code_paths=[...]``: they must run before Hydra looks at the choices."""
    given = [text for text in arguments if text.lstrip("+").startswith("code_paths=")]
    if not given:
        return []
    [override] = OverridesParser.create().parse_overrides(given[-1:])
    value = override.value()
    return [str(path) for path in value] if isinstance(value, list) else [str(value)]
