"""The identity of a run: the hash of what determines its result, and a readable name before it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lm_experiments.data import files_hash
from lm_experiments.rundir.names import HASH_END
from lm_experiments.study.keys import all_keys, flat, is_hashed, use_of
from lm_experiments.training.config import RunConfig, plain_values
from lm_experiments.training.devices import find_device

SLUG_LENGTH = 80
# Of a sweep's folder, which people type.
NAME_LENGTH = 40
# Hashed values that follow from others.
FOLLOWING = ("code", "data_hash", "model.ffn_width", "tokenizer.files")
SHOWN = 3


def config_hash(config: RunConfig, data_hash: str, precision: str) -> str:
    """Return the SHA-256 of everything that determines the run's result: its `hashed_values`."""
    return hash_of_values(hashed_values(config, data_hash, precision))


def hash_of_values(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a run's `hashed_values`."""
    return _sha256(json.dumps(values, sort_keys=True).encode())


def hashed_values(config: RunConfig, data_hash: str, precision: str) -> dict[str, Any]:
    """Return everything that determines the run's result, by dotted key.

    Args:
        config: the run's configuration.
        data_hash: the hash of the corpus itself; where it lies does not count.
        precision: the precision in force, where the configuration leaves it open.
    """
    values = {k: v for k, v in flat(plain_values(config)).items() if is_hashed(k, v)}
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
    return values


def differing_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, or that only one of both has."""
    return [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the first few of the hashed values that differ, in words."""
    keys = differing_keys(one, other)
    # What was typed says more than the hashes that follow from it.
    keys.sort(key=lambda key: key in FOLLOWING)
    shown = [f"{k}: {_shown(one.get(k))} and {_shown(other.get(k))}" for k in keys[:SHOWN]]
    return "; ".join([*shown, *([f"{len(keys) - SHOWN} more"] if len(keys) > SHOWN else [])])


def arm_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that make an arm: not those that only name, place or watch a run."""
    return [text for text in overrides if use_of(text.split("=", 1)[0].lstrip("+~")).makes_arm]


def arm_label(overrides: Sequence[str], parts: int = 1) -> str:
    """Return the row's name: choices as bare words, other values with the end of their key.

    Of a path, and of a key, only the last ``parts`` are kept.
    """
    words = []
    for override in overrides:
        key, _, value = override.partition("=")
        value = "/".join(value.rstrip("/").split("/")[-parts:])
        whole = parts > 1 or "." in key
        words.append(f"{'.'.join(key.split('.')[-parts:])}={value}" if whole else value)
    return " ".join(words) or "baseline"


def arm_labels(arms: Sequence[Sequence[str]]) -> list[str]:
    """Return the labels of all arms of a sweep, given as overrides: the shortest that differ.

    Labels that two arms share grow by parts of their paths and keys, up to the whole overrides.
    """
    longest = max((len(re.split(r"[./]", text)) for own in arms for text in own), default=1)
    labels = [arm_label(own) for own in arms]
    for parts in range(2, longest + 2):
        owners: dict[str, set[tuple[str, ...]]] = {}
        for label, own in zip(labels, arms, strict=True):
            owners.setdefault(label, set()).add(tuple(own))
        labels = [
            arm_label(own, parts) if len(owners[label]) > 1 else label
            for label, own in zip(labels, arms, strict=True)
        ]
    return labels


def directory_name(arm: str, seed: int, config_hash: str) -> str:
    """Return the run directory's name: arm, seed, and the start of the hash."""
    slug = re.sub(r"[^A-Za-z0-9._=]+", "-", arm).strip("-")[:SLUG_LENGTH].replace("=", "-")
    return f"{slug}-s{seed}-{config_hash[:HASH_END]}"


def sweep_name(swept: Sequence[str], fixed: Sequence[str]) -> str:
    """Name a sweep after the keys it sweeps, and the keys and values it fixes.

    Seeds are left out, so that a sweep with more of them finds the runs it has. A name that is
    too long, or lacks characters of the values, ends with a hash of all of it.
    """
    pairs = [word.lstrip("+~").partition("=")[::2] for word in fixed]
    keys = [short_key(key) for key in swept if key != "seed"]
    words = ["-".join(keys) or "seeds", *(f"{short_key(key)}-{value}" for key, value in pairs)]
    whole = "_".join(words)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", whole).strip("-")
    if len(name) <= NAME_LENGTH and name == whole:
        return name
    return f"{name[: NAME_LENGTH - 9]}-{_sha256(whole.encode())[:8]}"


def short_key(key: str) -> str:
    """Return the end of a dotted key that no other key has."""
    known, parts = _key_names(), key.split(".")
    for start in range(len(parts) - 1, 0, -1):
        end = ".".join(parts[start:])
        if not any(name != key and f".{name}".endswith(f".{end}") for name in known):
            return end
    return key


@cache
def _key_names() -> frozenset[str]:
    return frozenset(key.name for key in all_keys())


def _shown(value: Any) -> str:
    """Return a value as people read it, a hash by its beginning."""
    if isinstance(value, list):
        return ",".join(map(_shown, value))
    return value[:8] if isinstance(value, str) and len(value) == 64 else str(value)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
