"""Offsets that went back wait for a reset that explains them, and not without bound."""

from typing import Any, cast

from lockstep.order.judge.commits import WAITING_MAX, UnlessReset
from lockstep.order.kinds import Kind
from lockstep.order.report import Findings
from lockstep.order.traces.clocks import Clocks


class TwoClocks:
    """Of two machines whose records may be 1 s apart."""

    def __len__(self) -> int:
        return 2

    def gap_ns(self, _clock: int, at_ns: int, _other: int, other_ns: int) -> tuple[int, int]:
        return other_ns - at_ns - 10**9, other_ns - at_ns + 10**9


def record(offset: int, at_ns: int) -> dict[str, Any]:
    return {"offset": offset, "mono_ns": at_ns, "wall_ms": at_ns // 10**6, "event": "stored"}


def test_the_oldest_of_many_is_reported_without_waiting() -> None:
    """A reset explains those that still wait; the end reports the others."""
    found: list[int] = []
    rules = UnlessReset(cast("Clocks", TwoClocks()), Findings())
    for number in range(WAITING_MAX + 3):
        rules.report(record(number, number), 0, lambda number=number: found.append(number))  # type: ignore[misc]
    assert found == [0, 1, 2]
    rules.reset(record(WAITING_MAX, WAITING_MAX), 1)
    rules.finish()
    assert found == [number for number in range(WAITING_MAX + 3) if number != WAITING_MAX]


def test_a_reset_explains_a_position_that_was_read_before_it() -> None:
    """The repeat that shows the position is read later; a reset that was read before the position explains nothing."""
    found: list[str] = []
    rules = UnlessReset(cast("Clocks", TwoClocks()), Findings())
    rules.reset(record(5, 0), 1)
    rules.report(record(5, 10), 0, lambda: found.append("before"), rules.count)
    since = rules.count
    rules.reset(record(7, 20), 1)
    rules.report(record(7, 10), 0, lambda: found.append("behind"), since)
    rules.finish()
    assert found == ["before"]


def test_a_late_finding_keeps_the_time_at_which_it_was_found() -> None:
    """And what is found later keeps its own."""
    findings = Findings(at_ns=5, source=2)
    rules = UnlessReset(cast("Clocks", TwoClocks()), findings)
    rules.report(record(5, 10), 0, lambda: findings.violation(Kind.STALE_COMMIT, "back"))
    findings.at_the_end()
    rules.finish()
    assert [(one.at_ns, one.source) for _, one in findings.found()] == [(5, 2)]
    assert findings.at_ns == 1 << 63
