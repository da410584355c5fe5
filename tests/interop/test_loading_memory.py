"""Loading a checkpoint needs little more memory than its tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig

from lm_experiments.interop.convert import expected_tensors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
LONGEST = 300
FACTOR = 1.2
# Prints the bytes of the tensors, and by how many the process has grown at most.
MEASURE = """
import json, sys
from pathlib import Path
import torch
from lm_experiments.interop import load_hf
from lm_experiments.model import ModelConfig, build_model

def peak():
    # Of this process alone; that of getrusage starts where the parent was.
    [line] = [row for row in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in row]
    return int(line.split()[1]) * 1024

# What a first forward pass loads is no part of the checkpoint.
build_model(ModelConfig(d_model=8, n_layers=1, n_heads=1, vocab_size=8), 0)
before = peak()
model = load_hf(sys.argv[1])
after = peak()
assert all(p.device.type == "cpu" and torch.isfinite(p).all() for p in model.parameters())
print(json.dumps([sum(p.numel() * p.element_size() for p in model.parameters()), after - before]))
"""
SIZES: dict[str, dict[str, Any]] = {
    # Every tensor is taken as it is.
    "llama": {
        "vocab_size": 16000,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "tie_word_embeddings": False,
    },
    # Nearly every one is transposed or divided.
    "gpt2": {"vocab_size": 16000, "hidden_size": 1024, "n_layer": 10, "num_attention_heads": 16},
    "gpt_neox": {
        "vocab_size": 16000,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 10,
        "num_attention_heads": 16,
    },
}


def write_checkpoint(folder: Path, kind: str, dtype: torch.dtype, **fields: Any) -> None:
    theirs = AutoConfig.for_model(kind, **fields)
    theirs.save_pretrained(folder)
    names = expected_tensors(theirs)
    if theirs.tie_word_embeddings:
        del names["lm_head.weight"]
    save_file(
        {name: torch.randn(shape).to(dtype) for name, shape in names.items()},
        folder / "model.safetensors",
    )


def measure(folder: Path) -> tuple[int, int]:
    """Return the bytes of the tensors and those that the process grew by."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder)],
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    size, growth = json.loads(done.stdout.splitlines()[-1])
    return size, growth


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", SIZES)
def test_loading_needs_little_more_than_the_tensors(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path, kind, dtype, **SIZES[kind])
    size, growth = measure(tmp_path)
    assert size > 2e8
    assert 0.9 * size < growth <= FACTOR * size
