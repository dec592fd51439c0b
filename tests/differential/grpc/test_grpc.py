"""gRPC on RocketMQ 5.5's own proxy and on our broker: the same is seen, at the same times."""

from collections.abc import Mapping
from typing import Final

import pytest

from tests.differential.explanations import explain
from tests.differential.grpc.cases import CASES
from tests.differential.grpc.differences import BETTER, DIFFERENCES, is_answered_alike, unexplained
from tests.differential.grpc.played import Played

pytestmark = pytest.mark.timeout(900)  # the first test plays everything, some of it three times
CASES_MIN: Final = 250
AGREEMENT_MIN: Final = 0.97


def test_all_is_seen_alike(played: Mapping[str, Played]) -> None:
    """The same in the same order, at most so far apart in time, and where it is not, a reason is given."""
    failed = []
    for one in played.values():
        failed += [f"{one.case.id}: {difference}" for difference in unexplained(one)]
        failed += [f"{one.case.id}: times {one.apart()}, late {one.late_s}"] if one.apart() else []
    assert not failed, "\n".join(failed)


def test_no_explanation_is_idle(played: Mapping[str, Played]) -> None:
    used = {reason for one in played.values() for _, reason in explain(one.outcome, BETTER + DIFFERENCES)}
    assert [each for each in BETTER + DIFFERENCES if each not in used] == []


def test_agreement_is_high(played: Mapping[str, Played]) -> None:
    """At least 97 of a hundred cases agree; build/fidelity-grpc.md says which do not."""
    agree = sum(is_answered_alike(one.outcome) and not one.apart() for one in played.values())
    print(f"{agree} of {len(played)} cases of gRPC agree")
    assert len({case.id for case in CASES}) == len(CASES) == len(played) >= CASES_MIN
    assert agree >= AGREEMENT_MIN * len(played)
