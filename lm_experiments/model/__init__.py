"""The model: pure PyTorch, built from registered components.

Start with `transformer.py`, which is the whole model on one page; `block.py` holds the residual
algebra, `registry.py` how components are found, and one file each axis: `norms.py`,
`feedforward.py`, `positions/`, `attention.py`, `init.py`. `ledger.py` counts.
"""

from .config import ModelConfig
from .init import keyed_seed
from .ledger import Ledger, count
from .loss import IGNORE_INDEX
from .registry import AXES, Choice, choose, register
from .transformer import Transformer, build_model, sketch_model

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
