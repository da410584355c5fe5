"""Conversion of models and tokenizers from and to Hugging Face `transformers`.

Start with `convert.py`: `from_hf`, `load_hf` and `to_hf`. `modules.py` maps modules, `layouts.py`
tensors and `configs.py` options; `support.py` lists what each family supports. `weights.py` reads
safetensors, `folders.py` writes a run as a folder. `harness.py` lets lm-eval ask a model as it is.
"""

from importlib.util import find_spec

_NEEDED = ("transformers", "safetensors")
if _missing := [name for name in _NEEDED if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"{' and '.join(_missing)}: not installed, but needed to convert Hugging Face models; "
        "type pip install -e '.[hf]'."
    )

from lm_experiments.interop.configs import FAMILIES  # noqa: E402
from lm_experiments.interop.convert import from_hf, load_hf, to_hf  # noqa: E402
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
