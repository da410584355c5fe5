"""Models of Hugging Face's `transformers` as ours, and ours as theirs.

Start with `convert.py`: `from_hf`, `load_hf` and `to_hf`. `modules.py` says which module of theirs
is which of ours, `configs.py` which option, `fit.py` what each family can express. `sources.py`
reads their folders, `folders.py` writes a run as one. `parity.py` measures how far logits differ.
"""

from importlib.util import find_spec

_NEEDED = ("transformers", "safetensors")
if _missing := [name for name in _NEEDED if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"{' and '.join(_missing)}: not installed, and needed to exchange models with Hugging "
        "Face; type pip install -e '.[hf]'."
    )

from lm_experiments.interop.convert import FAMILIES, from_hf, load_hf, to_hf  # noqa: E402
from lm_experiments.interop.folders import read_folder, write_folder  # noqa: E402
from lm_experiments.interop.tokenizers import to_fast  # noqa: E402

__all__ = [
    "FAMILIES",
    "from_hf",
    "load_hf",
    "read_folder",
    "to_fast",
    "to_hf",
    "write_folder",
]
