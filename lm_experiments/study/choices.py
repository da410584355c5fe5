"""Components as Hydra choices: what is registered can be chosen, and nothing else is edited."""

from __future__ import annotations

from hydra.core.config_store import ConfigStore

from lm_experiments.model import AXES
from lm_experiments.model.registry import component, names


def offer_components() -> None:
    """Make every registered component a choice of its axis's group, its options under `model`."""
    store = ConfigStore.instance()
    for axis in AXES:
        for name in names(axis):
            node = component(axis, name).defaults()
            store.store(name=name, node=node, group=axis, package=f"model.{axis}")
