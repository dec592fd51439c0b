"""The same request to Apache's servers and to ours: the same answer, or a reason why not."""

from collections.abc import Mapping

import pytest

from tests.differential.cases.all import ALL_CASES
from tests.differential.comparing import Outcome
from tests.differential.explanations import explain
from tests.differential.served import served_codes

pytestmark = pytest.mark.timeout(300)  # the first test asks everything
IDS = [case.id for case in ALL_CASES if case.kind != "step" and case.code in served_codes()]


@pytest.mark.parametrize("case_id", IDS)
def test_answers_agree(case_id: str, outcomes: Mapping[str, Outcome]) -> None:
    """Both brokers answer a request alike, and where they do not, a reason is given."""
    unexplained = [str(difference) for difference, found in explain(outcomes[case_id]) if found is None]
    assert not unexplained, "\n".join(unexplained)
