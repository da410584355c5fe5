"""Where ``scripts/train.py`` enters: Hydra with our choices, and errors as one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lm_experiments.cli.errors import refuse
from lm_experiments.cli.help import FLAGS, asked_for, explanation, offer_help
from lm_experiments.cli.single_run import run_single
from lm_experiments.conf_dir import conf_dir
from lm_experiments.invocation import as_typed
from lm_experiments.study import sweeper
from lm_experiments.study.choices import offer_choices
from lm_experiments.study.words import prepared_words
from lm_experiments.training.output import unbreakable_output
from lm_experiments.training.signals import StopSignals
from lm_experiments.training.user_code import load_installed, take_code_paths


def main(
    run: Callable[[DictConfig], object] = run_single, explain: Callable[[], None] = offer_help
) -> None:
    """Run the command line: one run, by ``run``, or a sweep; exits non-zero if one failed.

    ``explain`` gives Hydra the text of ``--help``.
    """
    # Hydra prints errors itself unless this is set, and keeps them from us.
    debugging = "HYDRA_FULL_ERROR" in os.environ
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        load_installed()
        # A component must be known before Hydra looks at the choices.
        take_code_paths(sys.argv[1:])
        sys.argv[1:] = prepared_words(sys.argv[1:])
        offer_choices()
        sweeper.register()
        if words := asked_for(sys.argv[1:]):
            print(as_typed(explanation(words)))
            return
        if set(FLAGS) & set(sys.argv[1:]):
            explain()
        with StopSignals(), unbreakable_output():
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="train")(run)()
    except (ValueError, OSError, HydraException, OmegaConfBaseException, YAMLError) as error:
        if debugging:
            raise
        refuse(error, sys.argv[1:])
