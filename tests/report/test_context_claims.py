"""Published claims about an arm at another context, beside itself at the trained one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import synthetic_studies

from lm_experiments.errors import InputError
from lm_experiments.report import build_table, collect
from lm_experiments.report.statistics.contrasts import adjust, contrast
from lm_experiments.report.statistics.published import Finding
from lm_experiments.report.table.published import claim_notes
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.evaluations import Evaluate, Evaluation, write_evaluations
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.study import Study, read_study

PRESS = [Source("Press et al. 2022", "table 2", difference=-0.14)]
GAINS = Claim("It gains.", "better", ["silu", "silu"], context=2, sources=PRESS)
LOSES = Claim("It loses.", "worse", ["nope", "nope"], context=2, sources=[Source("A", "p. 3")])
SAME = Claim("It stays.", "equivalent", ["baseline"] * 2, context=2, sources=[Source("A", "p. 3")])
FAR = Claim("It goes on.", "better", ["layernorm"] * 2, context=2, sources=PRESS)
# By how much an arm's loss changes from the trained context to twice that, and by seed besides.
CHANGES = {"silu": -0.05, "nope": -0.03, "baseline": 0.0}


class StudyFactory(synthetic_studies.StudyFactory):
    """A study with runs measured at the trained context and twice that."""

    claims: list[Claim]

    def declared(self) -> Study:
        return replace(super().declared(), evaluate=Evaluate([1, 2]), published=self.claims)

    def measured(self) -> Table:
        self.arms = {arm: self.arms[arm] for arm in ("baseline", "nope", "silu", "layernorm")}
        self.report()
        for row in self.entries:
            found = {
                f"context: {tokens}": self.evaluation(row.arm, row.seed, tokens)
                for tokens in (128, 256)
            }
            loss = self.loss(row.arm, row.seed)
            write_evaluations(self.root / row.directory, loss, found)
        return build_table(collect(self.plan()))

    def evaluation(self, arm: str, seed: int, tokens: int) -> Evaluation:
        if arm == "layernorm" and tokens > 128:
            return Evaluation(tokens, 128, refused="trained to 128")
        change = CHANGES.get(arm, 0.0) + 0.0005 * (seed % 3) if tokens > 128 else 0.0
        return Evaluation(tokens, 128, self.loss(arm, seed) + change, 100)


def findings(table: Table) -> dict[str, Finding]:
    return {found.claim.claim: found for found in table.published}


def test_an_arm_is_held_against_itself_at_the_trained_context(tmp_path: Path) -> None:
    study = StudyFactory(tmp_path / "far")
    study.claims = [GAINS, LOSES, SAME, FAR]
    table = study.measured()
    found = findings(table)
    assert found["It gains."].verdict == "holds in sign"
    assert found["It gains."].mean == pytest.approx(-0.05 + 0.0004)
    assert found["It loses."].verdict == "does not hold"
    assert found["It stays."].verdict == "holds"
    assert found["It goes on."].verdict == "not testable here"
    assert found["It goes on."].reason == "layernorm at 2x cannot be measured (trained to 128)"
    [line] = [note for note in claim_notes(table) if "It gains." in note]
    assert "(silu at 2x - silu at 1x: better by -0.14 nats/token)" in line
    [line] = [note for note in claim_notes(table) if "It loses." in note]
    assert "(nope at 2x - nope at 1x: worse)" in line
    # The contrasts of the table have no part in them: no row shows these claims.
    assert not any("0.14" in str(row.comparison) for row in table.rows)


def test_a_margin_in_bits_says_nothing_of_losses_in_nats(tmp_path: Path) -> None:
    study = StudyFactory(tmp_path / "far")
    study.claims, study.primary = [GAINS, SAME], "bits_per_byte"
    # In nats it would be wide enough to call the gain none.
    study.margin = 0.2
    found = findings(study.measured())
    assert found["It gains."].verdict == "holds in sign"
    assert found["It stays."].reason == "the study declares no margin in nats/token"


def test_they_are_a_family_of_their_own(tmp_path: Path) -> None:
    study = StudyFactory(tmp_path / "far")
    study.claims = [GAINS, LOSES, SAME]
    for seed in study.seeds:
        study.losses["silu", seed] = 3.0
    noisy = {0: -0.05, 1: 0.0, 2: -0.06, 3: -0.03, 4: -0.04}
    plain = contrast(noisy, dict.fromkeys(noisy, 0.0))
    assert plain is not None and plain.p is not None and plain.p < 0.05
    # Clear alone, and not among three of which the others are no clearer.
    assert adjust([plain, None, None])[0].adjusted_p > 0.05  # type: ignore[union-attr,operator]
    study.evaluation = lambda arm, seed, tokens: Evaluation(  # type: ignore[method-assign]
        tokens, 128, 3.0 + (noisy[seed] if (arm, tokens) == ("silu", 256) else 0.0), 100
    )
    assert findings(study.measured())["It gains."].verdict == "not resolved"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"contrast": ["a", "b"]}, "with context: compares an arm with itself; write contrast:"),
        ({"context": 1}, "context=1 needs a multiple of the trained context other than 1"),
        ({"expect": "fails", "sources": [{"source": "A", "read": "p"}]}, "context=2 needs"),
        (
            {"expect": "order", "contrast": [], "order": dict.fromkeys("abcd", 1.0)},
            "expect: order has no contrast:, range: or context:",
        ),
        ({"context": 4}, "context=4 takes both it and 1 among study.evaluate.contexts"),
    ],
)
def test_a_claim_that_cannot_be_measured_is_refused(
    changes: dict[str, object], sentence: str
) -> None:
    claim: dict[str, object] = {
        **{"claim": "It gains.", "expect": "better", "contrast": ["a", "a"], "context": 2},
        "sources": [{"source": "A", "read": "p", "difference": -0.1}],
    }
    values = {"name": "x", "baseline": "a", "arms": {"a": [], "b": []}}
    evaluate = {"contexts": [1, 2]}
    assert read_study({**values, "evaluate": evaluate, "published": [claim]}).published
    with pytest.raises(InputError, match=sentence):
        read_study({**values, "evaluate": evaluate, "published": [{**claim, **changes}]})
