"""Reading Hugging Face folders: tensors are read unchanged, and wrong ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import parity
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from lm_experiments.errors import InputError
from lm_experiments.interop import FAMILIES, from_hf, load_hf


def model_of(kind: str) -> Any:
    torch.manual_seed(2)
    return parity.their_model(kind, next(iter(parity.VARIANTS[kind].values())))


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama, saved."""
    model_of("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def edit(folder: Path, **changes: torch.Tensor | None) -> None:
    """Change the tensors of a folder; None removes one."""
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in changes.items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_folder_gives_what_the_model_in_memory_gives(kind: str, tmp_path: Path) -> None:
    theirs = model_of(kind)
    theirs.save_pretrained(tmp_path)
    config, state = from_hf(tmp_path)
    config_in_memory, in_memory = from_hf(theirs)
    assert config == config_in_memory
    assert equal(state, in_memory)


@pytest.mark.parametrize("kind", ["gpt2", "bloom"])
def test_files_of_a_base_model_have_no_prefix(kind: str, tmp_path: Path) -> None:
    theirs = model_of(kind)
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()},
        tmp_path / "model.safetensors",
    )
    assert equal(from_hf(tmp_path)[1], from_hf(theirs)[1])


def test_several_files_with_an_index(tmp_path: Path) -> None:
    theirs = model_of("olmo2")
    theirs.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert equal(from_hf(tmp_path)[1], from_hf(theirs)[1])
    victim = sorted(tmp_path.glob("*.safetensors"))[0]
    victim.unlink()
    with pytest.raises(InputError, match=f"lacks {victim.name}"):
        from_hf(tmp_path)


def test_tensors_keep_their_type(tmp_path: Path) -> None:
    model_of("qwen3").to(torch.bfloat16).save_pretrained(tmp_path)
    model = load_hf(tmp_path)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert torch.isfinite(model(torch.arange(8)[None])).all()


def test_tables_that_old_versions_saved_are_no_parameters(folder: Path) -> None:
    before = from_hf(folder)[1]
    edit(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    assert equal(from_hf(folder)[1], before)


def test_missing_and_extra_and_misshapen_tensors_are_listed(folder: Path) -> None:
    edit(
        folder,
        **{
            "model.layers.1.mlp.up_proj.weight": None,
            "model.norm.weight": None,
            "model.layers.0.self_attn.sinks": torch.ones(6),
            "lm_head.weight": torch.ones(97, 47),
        },
    )
    with pytest.raises(InputError) as error:
        from_hf(folder)
    assert str(error.value) == (
        f"{folder} does not hold the tensors of its configuration; missing: model.norm.weight, "
        "model.layers.1.mlp.up_proj.weight; not expected: model.layers.0.self_attn.sinks; of "
        "another shape: lm_head.weight, 97x47 instead of 97x48."
    )


def test_of_many_missing_tensors_the_first_are_listed(folder: Path) -> None:
    names = [name for name in load_file(folder / "model.safetensors") if "layers" in name]
    edit(folder, **dict.fromkeys(names))
    edit(folder, **{"model.layers.9.x": torch.ones(1)})
    with pytest.raises(InputError, match=rf"and {len(names) - 10} more; not expected"):
        from_hf(folder)


def test_a_bias_that_the_configuration_does_not_have_is_not_dropped(folder: Path) -> None:
    edit(folder, **{"model.layers.0.self_attn.q_proj.bias": torch.ones(48)})
    with pytest.raises(InputError, match=r"not expected: model.layers.0.self_attn.q_proj.bias"):
        from_hf(folder)


def test_an_unsupported_class_is_named_with_those_that_are_supported(tmp_path: Path) -> None:
    AutoConfig.for_model("mistral").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError) as error:
        from_hf(tmp_path)
    assert "type 'mistral'" in str(error.value)
    assert all(kind in str(error.value) for kind in FAMILIES)


@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("gpt2", {"activation_function": "mish"}, "'mish' is not supported; it can be gelu"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "post_layernorm=True"),
        ("gemma2", {"use_bidirectional_attention": True}, "not a causal language model"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "rope_type='dynamic' is not supported; it can be default, linear, yarn, llama3",
        ),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 2.0,
                    "rope_theta": 1e4,
                    "original_max_position_embeddings": 8,
                    "attention_factor": 2.0,
                }
            },
            "attention_factor=2.0 is not supported",
        ),
    ],
)
def test_an_option_without_a_counterpart_is_refused(
    kind: str, changes: dict[str, Any], told: str
) -> None:
    fields = {**next(iter(parity.VARIANTS[kind].values())), **changes}
    with torch.device("meta"):
        theirs: nn.Module = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **fields))
    with pytest.raises(InputError, match=told.replace("(", r"\(")):
        from_hf(theirs)


def test_a_folder_without_a_configuration_or_without_safetensors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no config\.json"):
        from_hf(tmp_path)
    model_of("gpt2").config.save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(InputError, match="save the model as safetensors"):
        from_hf(tmp_path)


def test_a_damaged_file_is_named(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"model\.safetensors cannot be read as safetensors"):
        from_hf(folder)


def test_a_second_head_that_differs_from_a_tied_one_is_refused(tmp_path: Path) -> None:
    theirs = model_of("gpt2")
    theirs.save_pretrained(tmp_path)
    embedding = load_file(tmp_path / "model.safetensors")["transformer.wte.weight"]
    edit(tmp_path, **{"lm_head.weight": embedding.clone()})
    assert equal(from_hf(tmp_path)[1], from_hf(theirs)[1])
    edit(tmp_path, **{"lm_head.weight": embedding + 1})
    with pytest.raises(InputError, match="tie_word_embeddings"):
        from_hf(tmp_path)


def test_the_index_alone_is_json(tmp_path: Path) -> None:
    model_of("gpt2").config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(InputError, match=r"missing: transformer\.wte\.weight"):
        from_hf(tmp_path)
