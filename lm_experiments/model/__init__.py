"""The model: pure PyTorch, built from registered components.

Start with `transformer.py`, which is the whole model on one page; `block.py` holds the residual
algebra, `registry.py` how components are found, and one file each axis: `norms.py`,
`feedforward.py`, `positions/`, `attention.py`, `init.py`. `ledger.py` counts.
"""

from lm_experiments.model.config import ModelConfig
from lm_experiments.model.init import keyed_seed
from lm_experiments.model.ledger import Ledger, count
from lm_experiments.model.loss import IGNORE_INDEX
from lm_experiments.model.transformer import Transformer, build_model, sketch_model
from lm_experiments.registry import AXES, Choice, choose, register

__all__ = [
    "AXES",
    "IGNORE_INDEX",
    "Choice",
    "Ledger",
    "ModelConfig",
    "Transformer",
    "build_model",
    "choose",
    "count",
    "keyed_seed",
    "register",
    "sketch_model",
]
