"""Position encodings.

`base.py` defines the hooks, `absolute.py` encodings added to embeddings, `rope.py` rotary
embeddings (`scaling.py` for contexts longer than trained), `relative.py` biases on the scores.
"""

from lm_experiments.model.positions.absolute import Learned, NoPosition, Sinusoidal
from lm_experiments.model.positions.base import PairBias, Position, PositionSizes
from lm_experiments.model.positions.relative import ALiBi, HardALiBi, T5Bias, T5Options
from lm_experiments.model.positions.rope import RoPE, RoPEOptions

__all__ = [
    "ALiBi",
    "HardALiBi",
    "Learned",
    "NoPosition",
    "PairBias",
    "Position",
    "PositionSizes",
    "RoPE",
    "RoPEOptions",
    "Sinusoidal",
    "T5Bias",
    "T5Options",
]
