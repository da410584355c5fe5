"""Where ``scripts/train.py`` enters: Hydra with our choices, and errors as one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import hydra
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lm_experiments.cli.errors import refuse
from lm_experiments.cli.help import offer_help
from lm_experiments.cli.single_run import run_single
from lm_experiments.conf_dir import conf_dir
from lm_experiments.errors import InputError
from lm_experiments.study import sweeper
from lm_experiments.study.choices import offer_choices
from lm_experiments.training.output import unbreakable_output
from lm_experiments.training.signals import StopSignals
from lm_experiments.training.user_code import load_installed, take_code_paths


def main(run: Callable[[DictConfig], None] = run_single) -> None:
    """Run the command line: one run, by ``run``, or a sweep; exits non-zero if one failed."""
    # Hydra prints errors itself unless this is set, and keeps them from us.
    debugging = "HYDRA_FULL_ERROR" in os.environ
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Hydra reads -m at the front alone, and people type it anywhere.
    sys.argv[1:] = sorted(sys.argv[1:], key=lambda text: text not in ("-m", "--multirun"))
    try:
        _check_flags(sys.argv[1:])
        load_installed()
        # A component must be known before Hydra looks at the choices.
        take_code_paths(sys.argv[1:])
        offer_choices()
        sweeper.register()
        if {"--help", "-h"} & set(sys.argv[1:]):
            offer_help()
        with StopSignals(), unbreakable_output():
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="train")(run)()
    except (ValueError, OSError, HydraException, OmegaConfBaseException) as error:
        if debugging:
            raise
        refuse(error, sys.argv[1:])


def _check_flags(arguments: Sequence[str]) -> None:
    """Refuse a value typed as a flag, or one that no file can hold, before Hydra reads it."""
    known = [flag for action in get_args_parser()._actions for flag in action.option_strings]
    for text in arguments:
        if not text.isascii() and text.encode(errors="replace").decode() != text:
            raise InputError(
                f"{text!a} is not UTF-8; rename the file or folder that it names, for "
                "example with convmv -f latin1 -t utf8."
            )
        flag = text.split("=")[0]
        if text.startswith("--") and flag not in known:
            raise InputError(
                f"{text} is not an option; values are typed without dashes and with =, for "
                f"example {flag.lstrip('-')}=1. See python scripts/train.py --help."
            )
