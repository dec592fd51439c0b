"""When the processes of several brokers are started, restarted, ended and killed."""

import pytest

from lockstep.broker.multi_process.supervisor import (
    END_WITHIN_MS,
    PORT_IN_USE,
    PORT_WITHIN_MS,
    RESTARTS_MAX,
    TELL_AFTER_MS,
    TRANSITIONS,
    Action,
    Event,
    State,
    Supervisor,
)

NAMES = ["broker-a", "broker-b"]
BEGIN_MS = 1_000_000
SIGKILL, SIGTERM = -9, -15


def serving() -> Supervisor:
    """Both are ready."""
    supervisor = Supervisor(NAMES, BEGIN_MS)
    assert supervisor.tick(BEGIN_MS) == [(Action.START, name) for name in NAMES]
    for name in NAMES:
        supervisor.ready(name)
    return supervisor


def test_all_are_started_at_once_and_serve_when_ready() -> None:
    """The command listens when the last one is ready, and nothing is due then."""
    supervisor = Supervisor(NAMES, BEGIN_MS)
    due_ms = [supervisor.next_due_ms]
    assert supervisor.tick(BEGIN_MS) == [(Action.START, "broker-a"), (Action.START, "broker-b")]
    supervisor.ready("broker-b")
    serving_before = supervisor.all_serving
    supervisor.ready("broker-a")
    assert (serving_before, supervisor.all_serving) == (False, True)
    due_ms.append(supervisor.next_due_ms)
    assert due_ms == [BEGIN_MS, None]
    assert supervisor.tick(BEGIN_MS) == []


def test_one_that_dies_is_started_again_with_growing_delays() -> None:
    """0.2 s, then twice as long each time; the other one is left alone. After a quiet minute it begins anew."""
    supervisor, now_ms = serving(), BEGIN_MS
    for delay_ms in (200, 400, 800, 1600, 3200):
        assert supervisor.died("broker-b", SIGKILL, now_ms) == delay_ms
        assert supervisor.state("broker-b") is State.WAITING
        assert supervisor.tick(now_ms + delay_ms - 1) == []
        now_ms += delay_ms
        assert supervisor.next_due_ms == now_ms
        assert supervisor.tick(now_ms) == [(Action.START, "broker-b")]
        supervisor.ready("broker-b")
    assert supervisor.died("broker-b", SIGKILL, now_ms + 60_000) == 200
    assert supervisor.state("broker-a") is State.SERVING
    assert not supervisor.failure


def test_too_many_deaths_in_a_minute_end_everything() -> None:
    """The others are ended in order, and the reason names the process, the number and the last status."""
    supervisor, now_ms = serving(), BEGIN_MS
    for _ in range(RESTARTS_MAX):
        delay_ms = supervisor.died("broker-b", 1, now_ms)
        assert delay_ms is not None
        now_ms += delay_ms
        supervisor.tick(now_ms)
    assert supervisor.died("broker-b", SIGKILL, now_ms) is None
    assert supervisor.failure == "broker-b ended 6 times within 60 s, the last time with signal 9"
    assert supervisor.tick(now_ms) == [(Action.TERMINATE, "broker-a")]
    assert not supervisor.all_ended
    supervisor.died("broker-a", 0, now_ms)
    assert supervisor.all_ended


def test_one_that_never_served_is_not_started_again() -> None:
    """Its options or its store are bad: another attempt would end alike."""
    supervisor = Supervisor(NAMES, BEGIN_MS)
    supervisor.tick(BEGIN_MS)
    supervisor.ready("broker-a")
    assert supervisor.died("broker-b", 1, BEGIN_MS + 50) is None
    assert supervisor.failure == "broker-b did not start: it ended with status 1"
    assert supervisor.tick(BEGIN_MS + 50) == [(Action.TERMINATE, "broker-a")]
    supervisor.died("broker-a", 0, BEGIN_MS + 60)
    assert supervisor.all_ended


@pytest.mark.parametrize("status", [0, SIGTERM])
def test_all_end_when_asked(status: int) -> None:
    """Each is asked once. SIGTERM may come before a process can handle it; that is no failure."""
    supervisor = serving()
    supervisor.stop(BEGIN_MS)
    supervisor.stop(BEGIN_MS + 1)
    assert supervisor.tick(BEGIN_MS + 1) == [(Action.TERMINATE, name) for name in NAMES]
    for name in NAMES:
        assert supervisor.died(name, status, BEGIN_MS + 10) is None
    assert supervisor.all_ended
    assert supervisor.next_due_ms is None
    assert not supervisor.failure


def test_one_that_waits_for_its_restart_ends_at_once() -> None:
    """It is not started any more."""
    supervisor = serving()
    assert supervisor.died("broker-a", SIGKILL, BEGIN_MS) == 200
    supervisor.stop(BEGIN_MS + 1)
    assert supervisor.tick(BEGIN_MS + TELL_AFTER_MS) == [(Action.TERMINATE, "broker-b")]
    supervisor.died("broker-b", 0, BEGIN_MS + 5)
    assert supervisor.all_ended


def test_one_that_does_not_end_in_time_is_killed() -> None:
    """The user is told after 2 s. After 10 s it is a failure: the store may not be flushed. Each has its own time."""
    supervisor = serving()
    supervisor.stop(BEGIN_MS)
    supervisor.tick(BEGIN_MS)
    supervisor.died("broker-a", 0, BEGIN_MS + 10)
    assert supervisor.next_due_ms == BEGIN_MS + TELL_AFTER_MS
    assert supervisor.tick(BEGIN_MS + TELL_AFTER_MS) == [(Action.TELL, "broker-b")]
    supervisor.stop(BEGIN_MS + 3000)
    assert (supervisor.next_due_ms, supervisor.killed) == (BEGIN_MS + END_WITHIN_MS, False)
    assert supervisor.tick(BEGIN_MS + END_WITHIN_MS) == [(Action.KILL, "broker-b")]
    assert supervisor.tick(BEGIN_MS + 2 * END_WITHIN_MS) == []
    supervisor.died("broker-b", SIGKILL, BEGIN_MS + END_WITHIN_MS + 1)
    assert supervisor.all_ended
    assert supervisor.killed
    assert supervisor.failure == "broker-b did not end within 30 s and was killed"


def test_one_that_ends_late_is_no_failure() -> None:
    """A large store may take some seconds."""
    supervisor = serving()
    supervisor.stop(BEGIN_MS)
    supervisor.tick(BEGIN_MS + TELL_AFTER_MS)
    for name in NAMES:
        supervisor.died(name, 0, BEGIN_MS + END_WITHIN_MS - 1)
    assert (supervisor.all_ended, supervisor.killed, supervisor.failure) == (True, False, "")


def test_one_whose_port_is_taken_is_tried_again_for_a_minute() -> None:
    """It needs that port, and deaths for this reason are no fault of its own. Then all end, with the reason."""
    supervisor, now_ms = serving(), BEGIN_MS
    delay_ms = supervisor.died("broker-b", SIGKILL, now_ms)
    while delay_ms is not None:
        now_ms += delay_ms
        assert supervisor.tick(now_ms) == [(Action.START, "broker-b")]
        delay_ms = supervisor.died("broker-b", PORT_IN_USE, now_ms)
    assert PORT_WITHIN_MS <= now_ms - BEGIN_MS < PORT_WITHIN_MS + 5000
    assert supervisor.failure == "broker-b did not get its port back: another process has had it for a minute"
    assert supervisor.tick(now_ms) == [(Action.TERMINATE, "broker-a")]


def test_one_that_has_its_port_back_has_a_minute_again() -> None:
    """A port that is taken later is another matter; and a port that was taken at the first start is the user's."""
    supervisor = serving()
    supervisor.died("broker-b", PORT_IN_USE, BEGIN_MS)
    supervisor.tick(BEGIN_MS + 2000)
    supervisor.ready("broker-b")
    assert supervisor.died("broker-b", PORT_IN_USE, BEGIN_MS + PORT_WITHIN_MS) == 2000
    first = Supervisor(NAMES, BEGIN_MS)
    first.tick(BEGIN_MS)
    assert first.died("broker-b", PORT_IN_USE, BEGIN_MS) is None
    assert first.failure == "broker-b did not start: it ended with status 3"


def test_one_that_fails_while_it_ends_is_a_failure() -> None:
    """The exit status of the whole command must show it."""
    supervisor = serving()
    supervisor.stop(BEGIN_MS)
    supervisor.died("broker-a", 1, BEGIN_MS)
    supervisor.died("broker-b", 0, BEGIN_MS)
    assert supervisor.failure == "broker-a ended with status 1"


def test_every_state_answers_the_end_and_only_the_ended_one_is_final() -> None:
    """STOP leads to the end from everywhere; DIED is possible wherever a process runs."""
    for state in State:
        after, _ = TRANSITIONS[state, Event.STOP]
        assert after in (State.ENDING, State.AWAITED, State.KILLED, State.ENDED)
    running = {State.STARTING, State.SERVING, State.ENDING, State.AWAITED, State.KILLED}
    assert {state for state, event in TRANSITIONS if event is Event.DIED} == running
    assert [event for state, event in TRANSITIONS if state is State.ENDED] == [Event.STOP]
