"""Composes the configurations of a sweep's runs as Hydra does, each set of choices once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig


class Composer:
    """Composes a configuration from overrides, equal to that of Hydra's ``load_sweep_config``.

    Hydra finds, reads and merges the files that the choices name, in 90 ms, and then sets single
    values, in order, in less than one. What the choices give is kept; values are set in a copy, by
    Hydra's own function. Only ``hydra.overrides``, which nothing reads, lacks the values.

    Args:
        base: the configuration composed from what all runs of the sweep share.
        loader: Hydra's loader, with the search path of the command.
    """

    def __init__(self, base: DictConfig, loader: ConfigLoader) -> None:
        self._base, self._loader = base, loader
        self._parser = OverridesParser.create()
        self._override = cache(self._parse)
        self._chosen = cache(self._load)
        self._is_group = cache(self._has_options)

    def __call__(self, words: Sequence[str]) -> DictConfig:
        """Return the configuration; where there is none, the error is Hydra's."""
        try:
            overrides = {word: self._override(word) for word in words}
            if any(o.is_sweep_override() or o.is_hydra_override() for o in overrides.values()):
                return self._load(*words)
            values = [overrides[word] for word in words if self._is_value(overrides[word])]
            choices = [word for word in words if not self._is_value(overrides[word])]
            config = copy.deepcopy(self._chosen(*choices))
            ConfigLoaderImpl._apply_overrides_to_config(values, config)
        except Exception:
            # Its error is that of all words together.
            return self._load(*words)
        return config

    def _load(self, *words: str) -> DictConfig:
        return self._loader.load_sweep_config(self._base, list(words))

    def _parse(self, word: str) -> Override:
        return self._parser.parse_override(word)

    def _is_value(self, override: Override) -> bool:
        """Return whether Hydra sets a value for it, and does not choose from a group."""
        return isinstance(override.value(), dict) or not self._is_group(override.key_or_group)

    def _has_options(self, group: str) -> bool:
        job, typed = self._base.hydra.job, self._base.hydra.overrides
        name, words = str(job.config_name), cast(list[str], list(typed.hydra))
        options = self._loader.get_group_options(group, None, name, words)
        return bool(options)
