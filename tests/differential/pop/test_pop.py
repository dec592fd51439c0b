"""POP and order on RocketMQ 5.5's own broker and on ours: the same answers, at the same times."""

from collections.abc import Mapping
from typing import Final

import pytest

from tests.differential.comparing import Outcome
from tests.differential.explanations import explain
from tests.differential.pop.cases import POP_CASES
from tests.differential.pop.conftest import Played
from tests.differential.pop.differences import POP_DIFFERENCES
from tests.differential.pop.scenes import SCENES

pytestmark = pytest.mark.timeout(600)  # the first test asks everything
IDS: Final = [case.id for case in POP_CASES if case.kind != "step"]
AGREEMENT_MIN: Final = 0.98


@pytest.mark.parametrize("case_id", IDS)
def test_answers_agree(case_id: str, pop_outcomes: Mapping[str, Outcome]) -> None:
    """Both brokers answer a request alike, and where they do not, a reason is given."""
    found = explain(pop_outcomes[case_id], POP_DIFFERENCES)
    unexplained = [str(difference) for difference, reason in found if reason is None]
    assert not unexplained, "\n".join(unexplained)


def test_no_explanation_is_idle(pop_outcomes: Mapping[str, Outcome]) -> None:
    used = {reason for each in pop_outcomes.values() for _, reason in explain(each, POP_DIFFERENCES)}
    assert [each for each in POP_DIFFERENCES if each not in used] == []


def test_agreement_is_high(pop_outcomes: Mapping[str, Outcome]) -> None:
    """At least 98 of a hundred cases agree."""
    agree = sum(each.agrees for each in pop_outcomes.values())
    print(f"{agree} of {len(pop_outcomes)} cases of POP agree")
    assert agree >= AGREEMENT_MIN * len(pop_outcomes)


@pytest.mark.parametrize("name", SCENES)
def test_timelines_agree(name: str, played: Mapping[str, Played]) -> None:
    """The same is seen in the same order, and no further apart than the scene allows."""
    seen = played[name]
    assert [moment[:2] for moment in seen.apache] == [moment[:2] for moment in seen.lockstep]
    assert not seen.apart(), (seen.apart(), seen.late_s)
