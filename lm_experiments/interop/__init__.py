"""Models of Hugging Face's `transformers` as ours, and ours as theirs.

Start with `convert.py`: `from_hf`, `load_hf` and `to_hf`. `modules.py` says which module of theirs
is which of ours, `configs.py` which option, `fit.py` what each family can express. `folders.py`
writes a run as a folder that `transformers` loads.
"""

from .convert import FAMILIES, from_hf, load_hf, to_hf
from .errors import InteropError

__all__ = ["FAMILIES", "InteropError", "from_hf", "load_hf", "to_hf"]
