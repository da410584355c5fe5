"""What a run is called: the hash of what determines its result, and a readable name before it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_experiments.data import files_hash
from lm_experiments.training.config import RunConfig, plain_values

# What does not change what a run computes: where it lies, who watches, how often one looks.
NOT_IDENTITY = {
    "": (
        "name",
        "arm",
        "arm_overrides",
        "logger",
        "compile",
        "runs_dir",
        "cache_dir",
        "code_paths",
    ),
    # Where the text comes from does not count: the hash of the text itself does.
    "data": ("path", "revision", "eval_batch_size"),
    "model": ("match", "match_tolerance", "d_ff"),
    "tokenizer": ("path",),
    "trainer": (
        "accelerator",
        "devices",
        "strategy",
        "threads",
        "micro_batch_size",
        "val_every",
        "log_every",
        "checkpoint_every",
    ),
}
# Options that came later, at the value that does what was done before them: runs from before keep
# their hash.
NEUTRAL: dict[str, dict[str, Any]] = {
    "": {"control": None},
    "data": dict.fromkeys(
        (
            "dataset",
            "subset",
            "train_files",
            "val_files",
            "train_split",
            "val_split",
            "text_column",
            "max_documents",
            "max_bytes",
        )
    ),
    "model": {
        "dropout": 0.0,
        "head_width": None,
        "scale_embeddings": False,
        "embedding_norm": False,
        "logit_softcap": None,
        "z_loss": 0.0,
        "document_mask": False,
        "end_of_text": None,
        "position_pattern": None,
        "attention_pattern": None,
    },
    "model.attention": {
        "kv_heads": None,
        "qk_norm": "none",
        "qk_norm_width": "head",
        "qk_norm_eps": 1e-5,
        "window": None,
        "softcap": None,
        "scale": None,
        "bias": None,
    },
    "model.norm": {"offset": False, "gain": True, "shift": True},
    "model.ffn": {"approximate": "none"},
    "model.init": {"zero_outputs": False},
    "model.position": {
        "fraction": 1.0,
        "scaling": "none",
        "factor": None,
        "original_context": None,
        "low_freq_factor": None,
        "high_freq_factor": None,
        "beta_fast": None,
        "beta_slow": None,
    },
    "tokenizer": {"end_of_text": None},
}
# Keys that name, place or watch a run, and so do not make it another arm.
NOT_ARM = (
    "seed",
    "name",
    "arm",
    "arm_overrides",
    "control",
    "runs_dir",
    "cache_dir",
    "code_paths",
    "logger",
    "study",
    "plan",
    "compile",
    "on_failure",
    "retries",
    "resources",
    "ray",
    "hydra",
)
SLUG_LENGTH = 80


def config_hash(config: RunConfig, data_hash: str, precision: str) -> str:
    """Return the SHA-256 of everything that determines the run's result.

    Args:
        config: the run's configuration.
        data_hash: the hash of the corpus itself; where it lies does not count.
        precision: the precision in force, where the configuration leaves it open.
    """
    values = plain_values(config)
    for section, keys in NOT_IDENTITY.items():
        part = _section(values, section)
        for key in keys:
            part.pop(key, None)
    for section, neutral in NEUTRAL.items():
        part = _section(values, section)
        for key, value in neutral.items():
            if key in part and part[key] == value:
                del part[key]
    values["model"]["ffn_width"] = config.model.width
    values["trainer"]["precision"] = precision
    values["data_hash"] = data_hash
    tokenizer_files = files_hash(config.tokenizer)
    if tokenizer_files is not None:
        values["tokenizer"]["files"] = tokenizer_files
    values["code"] = [_file_hash(path) for path in config.code_paths]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def arm_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that make an arm: not those that only name, place or watch a run."""
    keys = [text.split("=", 1)[0].lstrip("+~") for text in overrides]
    elsewhere = {f"trainer.{key}" for key in NOT_IDENTITY["trainer"]}
    return [
        text
        for text, key in zip(overrides, keys, strict=True)
        if key.split(".")[0] not in NOT_ARM and key not in elsewhere
    ]


def arm_label(overrides: Sequence[str]) -> str:
    """Return the row's name: the choices as bare words, values with the end of their key.

    Of paths, only the last part is kept.
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
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: SLUG_LENGTH - 9]}-{digest}"


def _section(values: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the part of nested values that a dotted path names."""
    for key in path.split(".") if path else ():
        values = values[key]
    return values


def _file_hash(path: str) -> str:
    return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()
