"""Position encodings: what they add to embeddings, how they turn queries and keys, what they bias.

`base.py` holds the hooks; `absolute.py` what is added to embeddings, `rope.py` what turns queries
and keys (`scaling.py` for contexts longer than trained), `relative.py` what biases the scores.
"""

from .absolute import Learned, NoPosition, Sinusoidal
from .base import FixedTable, Position, PositionSizes
from .relative import ALiBi, T5Bias, T5Options
from .rope import RoPE, RoPEOptions

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
