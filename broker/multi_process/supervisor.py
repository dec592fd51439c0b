"""Which broker processes to start, restart, end and kill, and when. Plain: events and times in, actions out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

__all__ = [
    "END_WITHIN_MS",
    "PORT_IN_USE",
    "PORT_WITHIN_MS",
    "RESTARTS_MAX",
    "TELL_AFTER_MS",
    "TRANSITIONS",
    "Action",
    "Event",
    "State",
    "Supervisor",
]

PORT_IN_USE: Final = 3  # exit status of a broker whose port another process has
RESTARTS_MAX: Final = 5
_WITHIN_MS: Final = 60_000
# An end takes a second where clients are connected.
TELL_AFTER_MS: Final = 2_000
# A busy machine may need ten times as long as a quiet one.
END_WITHIN_MS: Final = 30_000
PORT_WITHIN_MS: Final = 60_000
_PORT_AGAIN_MS: Final = 2_000
# Before the first restart within _WITHIN_MS; each further one waits twice as long.
_BACKOFF_MS: Final = 200
# -15: SIGTERM came before the process could handle it.
_ENDED_WELL: Final = (0, -15)


class State(Enum):
    WAITING = "waiting"  # for the time of its start
    STARTING = "starting"
    SERVING = "serving"
    ENDING = "ending"
    AWAITED = "awaited"  # it takes long to end
    KILLED = "killed"
    ENDED = "ended"


class Event(Enum):
    DUE = "due"
    READY = "ready"  # it listens, and is registered
    DIED = "died"
    STOP = "stop"  # the whole command ends
    LATE = "late"  # it has not ended yet


class Action(Enum):
    START = "start"
    TERMINATE = "terminate"
    TELL = "tell"  # the user, that it takes long to end
    KILL = "kill"


TRANSITIONS: Final[dict[tuple[State, Event], tuple[State, Action | None]]] = {
    (State.WAITING, Event.DUE): (State.STARTING, Action.START),
    (State.WAITING, Event.STOP): (State.ENDED, None),
    (State.STARTING, Event.READY): (State.SERVING, None),
    (State.STARTING, Event.DIED): (State.WAITING, None),
    (State.STARTING, Event.STOP): (State.ENDING, Action.TERMINATE),
    (State.SERVING, Event.DIED): (State.WAITING, None),
    (State.SERVING, Event.STOP): (State.ENDING, Action.TERMINATE),
    (State.ENDING, Event.LATE): (State.AWAITED, Action.TELL),
    (State.AWAITED, Event.LATE): (State.KILLED, Action.KILL),
    **{
        (state, event): (State.ENDED if event is Event.DIED else state, None)
        for state in (State.ENDING, State.AWAITED, State.KILLED)
        for event in (Event.READY, Event.STOP, Event.DIED)
    },
    (State.ENDED, Event.STOP): (State.ENDED, None),
}


@dataclass(slots=True)
class _Process:
    due_ms: int | None  # of DUE or LATE
    state: State = State.WAITING
    served: bool = False  # it was once ready: its options are good
    deaths_ms: list[int] = field(default_factory=list)  # within _WITHIN_MS
    no_port_since_ms: int | None = None  # another process has its port


class Supervisor:
    """The states of all broker processes.

    A process that dies is started again, after 0.2 s, 0.4 s ... When one dies more than RESTARTS_MAX times in a minute,
    or before it was ever ready, all end, and `failure` says why in one line. One whose port another process has taken
    since is tried again for PORT_WITHIN_MS.

    Attributes:
        killed: One did not end within END_WITHIN_MS. It lost what a SIGKILL loses, and no more.
    """

    def __init__(self, names: Sequence[str], now_ms: int) -> None:
        self._processes = {name: _Process(now_ms) for name in names}
        self._actions: list[tuple[Action, str]] = []
        self._was_serving = False
        self.failure = ""
        self.killed = False

    @property
    def all_ended(self) -> bool:
        return all(process.state is State.ENDED for process in self._processes.values())

    @property
    def all_serving(self) -> bool:
        return all(process.state is State.SERVING for process in self._processes.values())

    @property
    def next_due_ms(self) -> int | None:
        """When to call `tick` at the latest."""
        return min((one.due_ms for one in self._processes.values() if one.due_ms is not None), default=None)

    def state(self, name: str) -> State:
        return self._processes[name].state

    def ready(self, name: str) -> None:
        """It listens, and is registered."""
        self._processes[name].served = True
        self._processes[name].no_port_since_ms = None
        self._fire(name, Event.READY)

    def died(self, name: str, status: int, now_ms: int) -> int | None:
        """A process ended, with its exit status, negative after a signal.

        Returns:
            The delay of its restart; None: it is not started again.
        """
        process = self._processes[name]
        process.due_ms = None
        if process.state in (State.ENDING, State.AWAITED, State.KILLED):
            if status not in _ENDED_WELL:
                self.failure = self.failure or f"{name} ended with {_said(status)}"
            self._fire(name, Event.DIED)
            return None
        if status == PORT_IN_USE and process.served:
            return self._try_port_again(name, now_ms)
        deaths = [at for at in process.deaths_ms if now_ms - at < _WITHIN_MS] + [now_ms]
        process.deaths_ms = deaths
        self._fire(name, Event.DIED)
        if not process.served or len(deaths) > RESTARTS_MAX:
            times = f"ended {len(deaths)} times within {_WITHIN_MS // 1000} s, the last time"
            what = times if process.served else "did not start: it ended"
            self.failure = self.failure or f"{name} {what} with {_said(status)}"
            self.stop(now_ms)
            return None
        delay_ms: int = _BACKOFF_MS * 2 ** (len(deaths) - 1)
        process.due_ms = now_ms + delay_ms
        return delay_ms

    def _try_port_again(self, name: str, now_ms: int) -> int | None:
        """Routes and message ids have its port, so it needs that one."""
        process = self._processes[name]
        self._fire(name, Event.DIED)
        since_ms = process.no_port_since_ms = process.no_port_since_ms or now_ms
        if now_ms - since_ms >= PORT_WITHIN_MS:
            self.failure = self.failure or f"{name} did not get its port back: another process has had it for a minute"
            self.stop(now_ms)
            return None
        process.due_ms = now_ms + _PORT_AGAIN_MS
        return _PORT_AGAIN_MS

    def stop(self, now_ms: int) -> None:
        """End all processes."""
        for name, process in self._processes.items():
            before = process.state
            self._fire(name, Event.STOP)
            if process.state is not before:
                process.due_ms = now_ms + TELL_AFTER_MS if process.state is State.ENDING else None

    def tick(self, now_ms: int) -> list[tuple[Action, str]]:
        """What to do now, in this order: what became due, and what events before asked for."""
        for name, process in self._processes.items():
            if process.due_ms is not None and now_ms >= process.due_ms:
                process.due_ms = None
                self._fire(name, Event.DUE if process.state is State.WAITING else Event.LATE)
                if process.state is State.AWAITED:
                    process.due_ms = now_ms + END_WITHIN_MS - TELL_AFTER_MS
                elif process.state is State.KILLED:
                    self.killed = True
                    self.failure = self.failure or f"{name} did not end within {END_WITHIN_MS // 1000} s and was killed"
        actions, self._actions = self._actions, []
        return actions

    def _fire(self, name: str, event: Event) -> None:
        process = self._processes[name]
        process.state, action = TRANSITIONS[process.state, event]
        if action is not None:
            self._actions.append((action, name))


def _said(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
