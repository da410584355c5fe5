"""``inspect_init``: gradients and activations by layer before training, as a picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.cli.arguments import answered, load_user_code, script_parser
from lm_experiments.errors import InputError

if TYPE_CHECKING:
    from lm_experiments.study.plan import PlannedRun

DESCRIPTION = """\
Draw what the layers of a model do before training: the norm of the gradient, the residual stream
and the attention of each block, arms side by side, on the first batch. Words are those of the
training command; several values of one make several arms. Nothing is trained or written but
layers.png.

Where the arms differ in model.d_model, coordinates.png is a coordinate check for muP: activations
and logits against the width, at initialisation and after each of some steps. With init=mup they do
not grow with the width."""
EXAMPLES = """\
examples:
  python scripts/inspect_init.py placement=pre,post model.n_layers=12
  python scripts/inspect_init.py arch=gpt2,llama size=tiny --out pictures
  python scripts/inspect_init.py init=mup model.init.base_width=64 model.d_model=64,128,256
"""
MOST_ARMS = 28
LAYERS, COORDINATES = "layers.png", "coordinates.png"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 for bad input."""
    parser = script_parser("%(prog)s [WORD ...] [--out FOLDER] [--steps N]", DESCRIPTION, EXAMPLES)
    parser.add_argument("words", metavar="WORD", nargs="*", help="as for scripts/train.py")
    parser.add_argument("--out", metavar="FOLDER", default=".", help="where pictures go (here)")
    parser.add_argument(
        "--steps", type=int, default=4, help="steps of the coordinate check (default: 4)"
    )
    options = parser.parse_intermixed_args(arguments)
    return answered(lambda: _inspect(options))


def _inspect(options: argparse.Namespace) -> None:
    # Imported here, since the help need not wait for torch.
    from lm_experiments.report.pictures.initial import draw_coordinates, draw_layers
    from lm_experiments.study.initial_look import coordinates, look_at

    if options.steps < 0:
        raise InputError(f"--steps {options.steps} must be 0 or more.")
    runs = _arms(load_user_code(options.words))
    by_width = len({run.config.model.d_model for run in runs}) == len(runs) > 1
    looks = [look_at(run, options.steps if by_width else 0) for run in runs]
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    title = " ".join(options.words) or "the default model"
    draw_layers({look.label: look.row for look in looks}, title, folder / LAYERS)
    if by_width:
        draw_coordinates(coordinates(looks), title, folder / COORDINATES)
    for name in (LAYERS, COORDINATES) if by_width else (LAYERS,):
        print(f"Wrote {folder / name}")


def _arms(words: Sequence[str]) -> list[PlannedRun]:
    """Return the run of each arm; a word with several values makes several."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from lm_experiments.study import sweeper
    from lm_experiments.study.choices import offer_choices
    from lm_experiments.study.expand import grid_specs
    from lm_experiments.study.explain import compose_command
    from lm_experiments.study.plan import checked, plain, planned
    from lm_experiments.study.words import prepared_words

    offer_choices()
    sweeper.register()
    parsed = OverridesParser.create().parse_overrides(prepared_words(words))
    specs = grid_specs(parsed, None, None)
    if len(specs) > MOST_ARMS:
        raise InputError(f"{len(specs)} arms are more than the {MOST_ARMS} that are told apart.")
    return [planned(checked(plain(compose_command(list(spec.overrides))))) for spec in specs]
