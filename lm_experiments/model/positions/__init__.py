"""Position encodings: what they add to embeddings, how they turn queries and keys, what they bias.

`base.py` holds the hooks; `absolute.py` what is added to embeddings, `rope.py` what turns queries
and keys (`scaling.py` for contexts longer than trained), `relative.py` what biases the scores.
"""

from lm_experiments.model.positions.absolute import Learned, NoPosition, Sinusoidal
from lm_experiments.model.positions.base import FixedTable, Position, PositionSizes
from lm_experiments.model.positions.relative import ALiBi, T5Bias, T5Options
from lm_experiments.model.positions.rope import RoPE, RoPEOptions

__all__ = [
    "ALiBi",
    "FixedTable",
    "Learned",
    "NoPosition",
    "Position",
    "PositionSizes",
    "RoPE",
    "RoPEOptions",
    "Sinusoidal",
    "T5Bias",
    "T5Options",
]
