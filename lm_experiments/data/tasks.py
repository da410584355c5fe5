"""Synthetic tasks: problems whose answers have to be recalled or computed from their own tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lm_experiments.errors import InputError

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TaskConfig:
    """The problems of a synthetic task. A size counts pairs, symbols or digits, as the task says.

    Attributes:
        symbols: how many symbols the problems are made of; of addition the base.
        smallest: the smallest size; the size of each problem is drawn, each size equally likely.
        largest: the largest size in training and validation.
        test_largest: the largest size of the test problems, which begin above `largest`; they are
            measured once, after training. 0 is for none.
        held_out: how many problems each of validation and test has.
    """

    symbols: int = 32
    smallest: int = 4
    largest: int = 16
    test_largest: int = 0
    held_out: int = 512

    def check(self, name: str) -> None:
        """Raise `InputError` where the task of this name has no such problems."""
        task = TASKS[name](self)
        least = {"symbols": 2, "smallest": task.least, "largest": self.smallest, "held_out": 1}
        for option, lowest in least.items():
            if (value := getattr(self, option)) < lowest:
                raise InputError(
                    f"data.task.{option}={value} must be at least {lowest} for data={name}; "
                    f"type data.task.{option}={lowest} or more"
                )
        if self.test_largest and self.test_largest <= self.largest:
            raise InputError(
                f"data.task.test_largest={self.test_largest} must lie above data.task.largest="
                f"{self.largest}; type data.task.test_largest={2 * self.largest}, or 0 for no test"
            )
        most = max(self.largest, self.test_largest)
        if task.distinct and self.symbols < most:
            raise InputError(
                f"data.task.symbols={self.symbols} is too few for data={name}, which draws "
                f"{most} that differ; type data.task.symbols={most} or more"
            )

    def sizes(self, part: str) -> range:
        """Return the sizes of the problems of a part: train, val or test."""
        if part == "test":
            return range(self.largest + 1, self.test_largest + 1)
        return range(self.smallest, self.largest + 1)


class Task(ABC):
    """Makes problems: token ids in which some positions are answers.

    Class attributes:
        least: the smallest size there can be.
        distinct: whether the symbols of a problem differ from each other.
    """

    least: ClassVar[int] = 1
    distinct: ClassVar[bool] = False

    def __init__(self, config: TaskConfig) -> None:
        self.symbols = config.symbols

    @property
    @abstractmethod
    def ids(self) -> int:
        """How many token ids there are."""

    @abstractmethod
    def problem(self, generator: np.random.Generator, size: int) -> tuple[Ids, Ids]:
        """Draw one: its token ids (length,), and the positions of its answers among them."""

    @abstractmethod
    def length(self, size: int) -> int:
        """Return the number of tokens of a problem of this size."""

    def guess(self, answers: int) -> float:
        """Return the share of so many answers that is right without knowing their order.

        Each is guessed among the symbols, or values, of the problem that have not come again yet.
        """
        left = range(1, answers + 1)
        return max(sum(1 / count for count in left) / answers, 1 / self.symbols)


class Recall(Task):
    """Multi-query associative recall (Arora et al. 2024): key-value pairs, then every key again.

    The size is the number of pairs. After them each key follows once more, in another order, and
    its value is the answer. The published task leaves gaps between the queries; here there are
    none, so that the distance from a query to its pair is up to four tokens for each pair.
    """

    distinct = True

    @property
    def ids(self) -> int:
        """As many keys as values."""
        return 2 * self.symbols

    def length(self, size: int) -> int:
        """Two tokens for each pair and two for each query."""
        return 4 * size

    def problem(self, generator: np.random.Generator, size: int) -> tuple[Ids, Ids]:
        """Keys differ; values may be equal."""
        keys = generator.permutation(self.symbols)[:size]
        values = generator.integers(self.symbols, 2 * self.symbols, size)
        pairs = np.stack((keys, values), axis=1)
        ids = np.concatenate((pairs, generator.permutation(pairs))).ravel()
        return ids, np.arange(2 * size + 1, 4 * size, 2)


class Copy(Task):
    """Random symbols, a separator, and the same symbols again, which are the answers."""

    @property
    def ids(self) -> int:
        """The symbols and the separator."""
        return self.symbols + 1

    def length(self, size: int) -> int:
        """The symbols twice, and the separator."""
        return 2 * size + 1

    def problem(self, generator: np.random.Generator, size: int) -> tuple[Ids, Ids]:
        """Symbols may be equal."""
        symbols = generator.integers(self.symbols, size=size)
        ids = np.concatenate((symbols, [self.symbols], self.answer(symbols)))
        return ids, np.arange(size + 1, 2 * size + 1)

    def answer(self, symbols: Ids) -> Ids:
        """Return what follows the separator."""
        return symbols


class Reverse(Copy):
    """Random symbols, a separator, and the symbols backwards, which are the answers."""

    def answer(self, symbols: Ids) -> Ids:
        """Return what follows the separator."""
        return symbols[::-1]


class Addition(Task):
    """Two numbers of so many digits and their sum, whose digits are the answers.

    All are written from their lowest digit on, which makes carries local (Lee et al. 2023).
    """

    @property
    def ids(self) -> int:
        """The digits, plus and equals."""
        return self.symbols + 2

    def length(self, size: int) -> int:
        """Two numbers, two signs, and a sum with one digit more."""
        return 3 * size + 3

    def problem(self, generator: np.random.Generator, size: int) -> tuple[Ids, Ids]:
        """The sum has its leading zero."""
        first, second = generator.integers(self.symbols, size=(2, size))
        total, carry = np.append(first + second, 0), 0
        for place in range(size + 1):
            carry, total[place] = divmod(int(total[place]) + carry, self.symbols)
        plus, equals = self.symbols, self.symbols + 1
        ids = np.concatenate((first, [plus], second, [equals], total))
        return ids, np.arange(2 * size + 2, 3 * size + 3)

    def guess(self, answers: int) -> float:
        """Any digit."""
        return 1 / self.symbols


class Induction(Task):
    """Distinct symbols in random order, twice; the answers are the second time but its first.

    To continue a repetition takes attention to what followed a token, in two layers (Olsson et al.
    2022).
    """

    least = 2
    distinct = True

    @property
    def ids(self) -> int:
        """The symbols."""
        return self.symbols

    def length(self, size: int) -> int:
        """The symbols twice."""
        return 2 * size

    def problem(self, generator: np.random.Generator, size: int) -> tuple[Ids, Ids]:
        """The first of the second time cannot be known, as the size is not."""
        symbols = generator.permutation(self.symbols)[:size]
        return np.concatenate((symbols, symbols)), np.arange(size + 1, 2 * size)


TASKS: dict[str, type[Task]] = {
    "mqar": Recall,
    "copy": Copy,
    "reverse": Reverse,
    "addition": Addition,
    "induction": Induction,
}
"""Every task by the name that ``data=`` takes."""
