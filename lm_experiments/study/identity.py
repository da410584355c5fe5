"""The identity of a run: the hash of what determines its result, and a readable name before it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from lm_experiments.data import files_hash
from lm_experiments.study.keys import flat, use_of
from lm_experiments.training.config import RunConfig, plain_values
from lm_experiments.training.devices import find_device

SLUG_LENGTH = 80


def config_hash(config: RunConfig, data_hash: str, precision: str) -> str:
    """Return the SHA-256 of everything that determines the run's result.

    Args:
        config: the run's configuration.
        data_hash: the hash of the corpus itself; where it lies does not count.
        precision: the precision in force, where the configuration leaves it open.
    """
    values = {k: v for k, v in flat(plain_values(config)).items() if use_of(k).in_hash}
    values |= {
        "model.ffn_width": config.model.width,
        "trainer.precision": precision,
        "data_hash": data_hash,
        "tokenizer.files": files_hash(config.tokenizer),
        "code": [_sha256(Path(path).expanduser().read_bytes()) for path in config.code_paths],
    }
    if config.code_paths:
        # Code of the user's own may draw random numbers, as many as a micro-batch needs.
        values["trainer.micro_batch_size"] = find_device(config).micro_batch_size
    return _sha256(json.dumps(values, sort_keys=True).encode())


def arm_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that make an arm: not those that only name, place or watch a run."""
    return [text for text in overrides if use_of(text.split("=", 1)[0].lstrip("+~")).makes_arm]


def arm_label(overrides: Sequence[str]) -> str:
    """Return the row's name: choices as bare words, other values with the end of their key.

    Of a path, only the last part is kept.
    """
    words = []
    for override in overrides:
        key, _, value = override.partition("=")
        value = value.rstrip("/").rsplit("/", 1)[-1]
        words.append(f"{key.rsplit('.', 1)[-1]}={value}" if "." in key else value)
    return " ".join(words) or "baseline"


def directory_name(arm: str, seed: int, config_hash: str) -> str:
    """Return the run directory's name: arm, seed, and the start of the hash."""
    slug = re.sub(r"[^A-Za-z0-9._=]+", "-", arm).strip("-")[:SLUG_LENGTH].replace("=", "-")
    return f"{slug}-s{seed}-{config_hash[:8]}"


def sweep_name(swept: Sequence[str], fixed: Sequence[str]) -> str:
    """Name a sweep after the keys it sweeps and the values it fixes.

    Seeds are left out, so that a sweep with more of them finds the runs it has.
    """
    keys = [key.rsplit(".", 1)[-1] for key in swept if key != "seed"]
    words = ["-".join(keys) or "seeds", *(word.rsplit(".", 1)[-1] for word in fixed)]
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", "_".join(words)).strip("-")
    if len(name) <= SLUG_LENGTH:
        return name
    return f"{name[: SLUG_LENGTH - 9]}-{_sha256(name.encode())[:8]}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
