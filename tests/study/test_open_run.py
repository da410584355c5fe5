"""Other corpora than a run's own, named as on the command line."""

from __future__ import annotations

import pytest

from lm_experiments.errors import InputError
from lm_experiments.study.open_run import corpus_to_evaluate


def test_a_corpus_is_that_of_its_file_at_the_values_given() -> None:
    assert corpus_to_evaluate("kjv", None, []).val_fraction == 0.03
    assert corpus_to_evaluate("kjv", None, ["data.val_fraction=0.1"]).val_fraction == 0.1
    stories = corpus_to_evaluate("tinystories", "folder", ["data.max_documents=10"])
    assert (stories.path, stories.max_documents, stories.val_split) == ("folder", 10, "validation")


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        ("tinystoris", [], "data=tinystoris is not known; it can be addition, copy, fineweb_edu, "),
        ("text", [], r"data=text has no data\.path; type data\.path="),
        ("kjv", ["data.val_fracton=1"], "data.val_fracton is not a key; did you mean data.val_f"),
    ],
)
def test_a_corpus_that_cannot_be_meant_is_refused(
    name: str, words: list[str], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        corpus_to_evaluate(name, None, words)
