"""What was probably meant by a key or a choice that does not exist."""

from __future__ import annotations

import difflib
import re

from lm_experiments.study.choices import choices, groups
from lm_experiments.study.keys import SHORT, all_keys

# Words of other programs for a key or a group, by what they are called here. The last word of
# every key (lr, dropout, batch_size) is understood without an entry.
_OTHER_WORDS = {
    "arch": "architecture model preset",
    "attention": "attn attention_type",
    "data": "dataset corpus",
    "data.batch_size": "batch bs batchsize train_batch_size per_device_train_batch_size",
    "ffn": "activation act act_fn hidden_act nonlinearity mlp feedforward feed_forward",
    "logger": "wandb log report_to use_wandb",
    "model.context_length": "context ctx seq_len seq_length sequence_length block_size max_length "
    "max_len max_seq_len n_ctx n_positions",
    "model.d_ff": "ffn_dim ff_dim mlp_dim intermediate_size n_inner ffn_hidden",
    "model.d_model": "width dim hidden hidden_size hidden_dim embed_dim n_embd d_embed "
    "embedding_dim",
    "model.n_heads": "heads n_head num_heads num_attention_heads",
    "model.n_layers": "layers depth n_layer num_layers num_hidden_layers blocks n_blocks",
    "model.tie_embeddings": "tie_weights tied weight_tying",
    "norm": "norm_type normalization layernorm",
    "optimizer": "optim opt",
    "optimizer.clip_norm": "clip grad_clip gradient_clip_val max_grad_norm clip_grad",
    "optimizer.lr": "learning_rate max_lr base_lr rate",
    "optimizer.weight_decay": "wd decay",
    "placement": "norm_placement norm_position prenorm pre_norm post_norm",
    "position": "pos pos_emb pos_embed positional position_encoding positional_encoding pe",
    "runs_dir": "output_dir out_dir outdir output out log_dir save_dir",
    "schedule": "scheduler lr_scheduler lr_schedule",
    "schedule.warmup_steps": "warmup warmup_iters num_warmup_steps",
    "seed": "seeds random_seed manual_seed",
    "study": "experiment exp ablation",
    "trainer.checkpoint_every": "save_every save_steps save_interval checkpoint_interval",
    "trainer.devices": "gpus gpu n_gpus num_gpus ngpu world_size",
    "trainer.accelerator": "device",
    "trainer.max_steps": "steps iters iterations max_iters num_steps n_steps train_steps epochs "
    "max_epochs num_epochs",
    "trainer.micro_batch_size": "accumulate_grad_batches gradient_accumulation_steps grad_accum "
    "accumulation",
    "trainer.precision": "dtype amp fp16 bf16",
    "trainer.val_every": "eval_every eval_interval eval_steps val_check_interval",
    "tokenizer.vocab_size": "vocab vocabulary n_vocab",
}
SYNONYMS = {word: key for key, words in _OTHER_WORDS.items() for word in words.split()}
MOST = 3


def meant(key: str, value: str = "") -> str:
    """Return what was probably meant by ``key=value``, as the end of a sentence about it."""
    if found := suggestions(key, value):
        return f"did you mean {' or '.join(found)}?"
    section = f"{key.split('.')[0]}."
    if own := [name for name in _names() if re.fullmatch(rf"{re.escape(section)}\w+", name)]:
        return f"the keys of {section[:-1]} are {', '.join(own)}."
    return "see python scripts/train.py --help."


def is_key(key: str) -> bool:
    """Return whether a key or a group can be typed as it is."""
    return key in _names()


def suggestions(key: str, value: str = "") -> list[str]:
    """Return keys and groups that ``key`` may stand for, the likeliest first.

    Tried in turn: what other programs call it, the last word of a key, the group that has the
    value as a choice, and the nearest word.
    """
    last = _last(key.lower().replace("-", "_"))
    by_last: dict[str, list[str]] = {}
    for name in _names():
        by_last.setdefault(_last(name), []).append(name)
    found = [SYNONYMS[last]] if last in SYNONYMS else by_last.get(last)
    if not found:
        owners = [group for group in groups() if value and value in choices(group)]
        near = difflib.get_close_matches(last, by_last, n=1)
        found = owners if len(owners) == 1 else [name for word in near for name in by_last[word]]
    found = sorted(found, key=lambda name: -_likeness(name, key))[:MOST]
    return [f"{name}={value}" if value and value in choices(name) else name for name in found]


def _names() -> list[str]:
    # Not kept: files of the user's own add components, with keys.
    return list(dict.fromkeys([*groups(), *(key.name for key in all_keys()), *SHORT]))


def _last(key: str) -> str:
    return re.split(r"[./]", key)[-1]


def _likeness(name: str, key: str) -> float:
    return difflib.SequenceMatcher(None, name, key).ratio()
