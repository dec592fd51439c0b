"""Legal histories raise no alarm, and one small wrong in any of them is found."""

from hypothesis import given

from tests.order.legal_histories import histories
from tests.order.stories import Story, first_handlings


@given(histories())
def test_legal_histories_raise_no_alarm(story: Story) -> None:
    """Whatever a legal history repeats has a cause, and nothing is lost."""
    report = story.report()
    assert [violation.sentence for violation in report.violations] == []
    assert (report.lost, report.before_start, report.handled) == (0, 0, report.sent)
    assert sum(report.duplicates.values()) == report.attempts - len(first_handlings(story))
