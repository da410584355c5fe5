"""``evaluations.json``: what a run's last weights lose on other contexts, texts and tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import read_object, write_json
from lm_experiments.rundir.names import EVALUATIONS, damaged
from lm_experiments.rundir.parse import build

CONTEXT, DATA, TASK = "context", "data", "task"


@dataclass(frozen=True)
class Asked:
    """One thing that runs are measured on.

    Attributes:
        kind: one of CONTEXT, DATA, TASK.
        title: what a table calls it: 2x, the label of a corpus, the name of a task.
        multiple: of a context, its length over the trained one.
        words: of a corpus, as they are typed.
    """

    kind: str
    title: str
    multiple: float = 1.0
    words: tuple[str, ...] = ()

    def key(self, trained: int) -> str:
        """Return its name in a run's file; ``trained`` is the run's own context, in tokens."""
        names = {CONTEXT: str(self.tokens(trained)), DATA: " ".join(self.words), TASK: self.title}
        return f"{self.kind}: {names[self.kind]}"

    def tokens(self, trained: int) -> int:
        """Return the context length in tokens for a run of a trained one."""
        return max(1, round(self.multiple * trained))


@dataclass(frozen=True)
class Evaluate:
    """What else the runs of a study are measured on; none of it changes what is trained.

    Attributes:
        contexts: lengths, as multiples of the trained context, ascending.
        data: label -> the words of a corpus: my: [data=text, data.path=notes.txt].
        tasks: tasks of lm-eval, which has to be installed.
    """

    contexts: list[float] = field(default_factory=list)
    data: dict[str, list[str]] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        lengths = self.contexts
        if lengths != sorted(set(lengths)) or any(not 0 < length <= 1024 for length in lengths):
            raise InputError(
                f"study.evaluate.contexts={lengths} must be different multiples of the trained "
                "context, ascending, above 0; write evaluate: {contexts: [0.5, 1, 2, 4]}."
            )
        for label, words in self.data.items():
            names = [word for word in words if word.startswith("data=")]
            if len(names) != 1 or any(not word.startswith(("data=", "data.")) for word in words):
                raise InputError(
                    f"study.evaluate.data.{label}={words} is no corpus; write its name, and its "
                    f"keys if need be: {label}: [data=text, data.path=notes.txt]."
                )
        titles = [each.title for each in self.asked]
        if repeated := [title for title in titles if titles.count(title) > 1]:
            raise InputError(
                f"study.evaluate has {repeated[0]!r} twice; give a text or task another name."
            )
        if not self.asked:
            raise InputError(
                "study.evaluate asks for nothing; write evaluate: {contexts: [0.5, 1, 2, 4]}, "
                "data: or tasks:, or leave it out."
            )

    @property
    def asked(self) -> list[Asked]:
        """All of it, in the order of a table's columns."""
        return [
            *(Asked(CONTEXT, f"{multiple:g}x", multiple) for multiple in self.contexts),
            *(Asked(DATA, label, words=tuple(words)) for label, words in self.data.items()),
            *(Asked(TASK, task) for task in self.tasks),
        ]


@dataclass(frozen=True)
class Evaluation:
    """What one run loses on one of them; None where it could not be measured.

    Attributes:
        context: tokens of a window.
        trained: tokens of a window in training.
        loss: nats per token over all ``tokens`` targets.
        ends: of a context, where ranges of positions in a window end: the trained context, and its
            halves and doubles.
        by_position: nats per token over the targets of each range.
        position_tokens: how many these are.
        score: of a task, its first measure, called ``measure``.
        refused: why it could not be measured, in few words.
    """

    context: int | None = None
    trained: int | None = None
    loss: float | None = None
    tokens: int | None = None
    bits_per_byte: float | None = None
    ends: list[int] = field(default_factory=list)
    by_position: list[float] = field(default_factory=list)
    position_tokens: list[int] = field(default_factory=list)
    score: float | None = None
    measure: str = ""
    refused: str = ""

    def between(self, first: int | None, end: int | None = None) -> float | None:
        """Return the nats per token of the positions from ``first`` up to ``end``, None for none.

        Both are among ``ends``, or the window's own.
        """
        starts = [0, *self.ends]
        places = [
            (loss, count)
            for start, stop, loss, count in zip(
                starts, self.ends, self.by_position, self.position_tokens, strict=False
            )
            if start >= (first or 0) and (end is None or stop <= end)
        ]
        total = sum(count for _, count in places)
        return sum(loss * count for loss, count in places) / total if total else None


def position_ends(trained: int, length: int) -> list[int]:
    """Return where ranges of positions end: halves and doubles of ``trained``, up to ``length``."""
    ends = [trained]
    while ends[0] > 1:
        ends.insert(0, ends[0] // 2)
    while ends[-1] < length:
        ends.append(2 * ends[-1])
    return [*(end for end in ends if end < length), length]


def read_evaluations(run_dir: Path, val_loss: float | None) -> dict[str, Evaluation]:
    """Return what was measured of the weights that ended at ``val_loss``, by `Asked.key`.

    A run that was trained again since then, to another loss, has nothing.

    Raises:
        InputError: where the file is damaged.
    """
    path = run_dir / EVALUATIONS
    try:
        values = read_object(path)
    except FileNotFoundError:
        return {}
    try:
        found = {
            str(key): build(Evaluation, each, str(key)) for key, each in values["found"].items()
        }
    except (KeyError, AttributeError, InputError) as error:
        raise damaged(path, f"it holds no evaluations: {error}".rstrip(".")) from None
    return found if values.get("val_loss") == val_loss else {}


def write_evaluations(
    run_dir: Path, val_loss: float | None, found: Mapping[str, Evaluation]
) -> None:
    """Write what was measured of a run's weights, whole or not at all."""
    values = {key: dataclasses.asdict(each) for key, each in found.items()}
    write_json(run_dir / EVALUATIONS, {"val_loss": val_loss, "found": values})
