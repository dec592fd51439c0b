"""The process of a side: it plays the run of one lock mode as the session says, over a socket.

Each message is a line of JSON. While it plays it looks for orders every few milliseconds, so that an act of the user is
heard at once. It ends when the session does.
"""

import json
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lockstep.simulation.lab.experiment import PlayedWorld
from lockstep.simulation.lab.faults.text import FaultError, fault_text, read_fault
from lockstep.simulation.lab.registry import UnknownExperimentError
from lockstep.simulation.lab.report import error_text
from lockstep.simulation.lab.said import told
from lockstep.simulation.play.choice import Choice, Drawn, drawn
from lockstep.simulation.play.engine import Engine
from lockstep.simulation.play.judging import Judging
from lockstep.simulation.play.scene import Scenes
from lockstep.simulation.play.take_home import take_home, timeline_of_plans
from lockstep.simulation.play.telling import Telling
from lockstep.simulation.play.verdict import Verdict
from lockstep.simulation.search.plan_file import parse_plan, plan_text

__all__ = ["Worker", "main"]

Json = dict[str, Any]

_LOOK_S: Final = 0.03  # so long it plays without looking for orders
_PROGRESS_S: Final = 0.1
_TURNS: Final = 32  # of the loop between two looks at the clock
_CALM_S: Final = 0.2  # without an order: then the judge is asked about the moment that is shown
_BYTES: Final = 1 << 16
_CALLS_A_SECOND: Final = 800  # sentences about single messages
_CALLS_MAX: Final = 2000
_LISTS: Final = ("hosts", "links", "queues", "key_names", "members", "deliveries")


class _Deadline:
    """Whether a time has passed. The clock is asked while the guard refuses clocks: it is taken before."""

    def __init__(self) -> None:
        self._clock: Callable[[], float] = time.monotonic
        self._turns = 0
        self._end = 0.0

    def start(self, seconds: float) -> None:
        self._turns, self._end = 0, self._clock() + seconds

    def __call__(self) -> bool:
        self._turns += 1
        return self._turns % _TURNS == 0 and self._clock() >= self._end


class _Observers:
    """What is seen and told of a run. The last picture is that before all is shut down."""

    def __init__(self, played: PlayedWorld, plan: Any, shut: int, clock: Callable[[], float] = time.monotonic) -> None:
        # Taken before the guard refuses clocks.
        self._clock = clock
        self._cluster = played.cluster
        self._scenes, self._telling = Scenes(played.cluster), Telling(played.cluster)
        self.judging = Judging(Verdict(played.cluster, plan), shut)
        self._room, self._counted_at = float(_CALLS_MAX), self._clock()
        self._scene: Json = {}
        self._is_kept = False

    @property
    def is_last_moment(self) -> bool:
        """The hosts are about to be shut down, and the picture was not taken."""
        return self._cluster.ended_ms is not None and not self._is_kept

    def look(self) -> None:
        if not self._is_kept:
            self._scene = self._scenes.take()
            self._is_kept = self._cluster.ended_ms is not None

    def take(self, *, over: bool) -> Json:
        """The picture, and what is new since the last time."""
        self.look()
        told = self._telling.read(self._scene)
        self.judging.ask(over=over)
        judged = {"judged_ms": self.judging.judged_ms, "is_judged": self.judging.is_judged}
        return self._scene | told._asdict() | {"calls": self._some_of(told.calls)} | judged

    def _some_of(self, calls: list[Json]) -> list[Json]:
        """The newest ones, so that a fast run does not flood the page; of a moment that was jumped to, many."""
        now = self._clock()
        self._room = min(self._room + (now - self._counted_at) * _CALLS_A_SECOND, _CALLS_MAX)
        self._counted_at = now
        kept = calls[max(len(calls) - int(self._room), 0) :]
        self._room -= len(kept)
        return kept


class Worker:
    """Plays one run at a time.

    Args:
        tell: sends a message to the session.
        shut: a descriptor that copies of the process must not keep open.
    """

    def __init__(self, tell: Callable[[Json], object], shut: int) -> None:
        self._tell = tell
        self._shut = shut
        self._drawn: Drawn | None = None
        self._engine: Engine | None = None
        self._observers: _Observers | None = None
        self._deadline = _Deadline()
        self._target_ms: int | None = None  # None: nothing is to be played
        self._looks = self._shows = False  # when it arrives, and on its way
        self._told_at = 0.0

    @property
    def plays(self) -> bool:
        return self._target_ms is not None

    @property
    def judging(self) -> Judging | None:
        return self._observers.judging if self._observers is not None else None

    def judged(self) -> None:
        """The judge has an answer."""
        assert self.judging is not None
        judged = self.judging.collect()
        new = judged._asdict() if judged is not None else {}
        self._tell({"new": new | {"is_judged": self.judging.is_judged}})

    def close(self) -> None:
        """End the run."""
        if self.judging is not None:
            self.judging.close()
        self._observers = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def hear(self, order: Json) -> None:
        """Do an order, or begin to."""
        match order.pop("do"):
            case "open":
                self._open(order["choice"], order["mode"])
            case "start":
                self._start(order["touches"], looks=order["look"])
            case "to":
                self._target_ms, self._looks, self._shows = order["ms"], order["look"], order["shows"]
            case "hold":
                if self.plays:
                    self._arrive(looks=True)
            case "event":
                assert self._engine is not None
                self._engine.one_event()
                self._arrive(looks=True)
            case "check" | "touch" as do:
                self._touch(order["line"], order["at_ms"], is_done=do == "touch")
            case "home":
                self._home()
            case "plan":
                assert self._drawn is not None
                assert self._engine is not None
                self._tell({"plan": plan_text(self._drawn.name, self._engine.plan, "")})
            case "timeline":
                plans = [parse_plan(text, Path("plan")) for text in order["plans"]]
                self._tell({"timeline": timeline_of_plans(plans[0].name, [one.plan for one in plans])})

    def _open(self, choice: Json, mode: str) -> None:
        try:
            self._drawn = drawn(Choice(**choice), mode)
        except (UnknownExperimentError, ValueError) as error:
            self._tell({"refused": told(error.args[0])})
            return
        plan = self._drawn.plan
        own = [_line_of(event) for event in plan.events]
        opened = {"title": self._drawn.name, "seed": plan.seed, "plan": own, "life_ms": plan.life_ms}
        self._tell({"opened": opened, "mode": str(plan.lock_mode)})

    def _start(self, touches: Sequence[str], *, looks: bool) -> None:
        assert self._drawn is not None
        self.close()
        self._target_ms = None
        plan = self._drawn.plan
        if touches:
            plan = replace(plan, events=(*plan.events, *map(read_fault, touches)))
        self._engine = Engine(self._drawn.experiment, plan, on_built=self._built)
        self._engine.begin()
        self._arrive(looks=looks)

    def _built(self, played: PlayedWorld) -> None:
        assert self._engine is not None
        self._observers = _Observers(played, self._engine.plan, self._shut)

    def _touch(self, line: str, at_ms: int, *, is_done: bool) -> None:
        assert self._engine is not None
        try:
            event = self._engine.read_touch(line, at_ms)
            if is_done:
                self._engine.touch(event)
        except FaultError as error:
            self._tell({"refused": told(error.args[0])})
            return
        self._tell({"touched": fault_text(event), "at_ms": event.at_ms})

    def _home(self) -> None:
        assert self._drawn is not None
        assert self._engine is not None
        self._tell({"home": take_home(self._drawn.name, self._engine.plan)._asdict()})

    # Play ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Play for a moment of real time."""
        engine, target_ms = self._engine, self._target_ms
        assert engine is not None
        assert target_ms is not None
        self._deadline.start(_LOOK_S)
        if engine.advance_to(target_ms, self._pauses):
            self._arrive(looks=self._looks)
            return
        if self._observers is not None and self._observers.is_last_moment:
            self._observers.look()
        if time.monotonic() >= self._told_at + _PROGRESS_S:
            self._told_at = time.monotonic()
            self._tell({"passes": engine.now_ms} | ({"side": self._side(looks=True)} if self._shows else {}))

    def _pauses(self) -> bool:
        return self._deadline() or (self._observers is not None and self._observers.is_last_moment)

    def _arrive(self, *, looks: bool) -> None:
        self._target_ms = None
        self._tell({"at": self._side(looks=looks)})

    def _side(self, *, looks: bool) -> Json:
        """Where the run is, and what is seen and told of it if somebody looks."""
        engine = self._engine
        assert engine is not None
        over = engine.result is not None
        error = error_text(engine.result) if engine.result is not None and engine.result.error is not None else ""
        seen = self._observers.take(over=over) if self._observers is not None and (looks or over) else {}
        if self._observers is None:  # the world could not be built
            seen = dict.fromkeys(_LISTS, ()) | {"judged_ms": 0}
        own = {
            "now_ms": engine.now_ms,
            "mode": str(engine.plan.lock_mode),
            "life_ms": engine.plan.life_ms,
            "over": over,
            "error": error,
            "hash": engine.hash[:8],
            "can_touch": engine.can_touch,
            "taken": [event.at_ms for event in engine.plan.events],
        }
        return seen | own


def _line_of(event: Any) -> str:
    try:
        return fault_text(event)
    except KeyError:  # a fault that only worlds have
        return f"{event.fault} {event.target}@{event.at_ms}ms"


def main(number: int) -> None:
    """Serve the session at the other end of a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the session, which ends this process
    channel = socket.socket(fileno=number)
    worker = Worker(
        lambda message: channel.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n"), number
    )
    try:
        _serve(worker, channel)
    finally:
        worker.close()


def _serve(worker: Worker, channel: socket.socket) -> None:
    """Until the session ends."""
    came = b""
    while True:
        judging = worker.judging
        answers = judging.answers if judging is not None else None
        waits_s = 0 if worker.plays else _CALM_S if judging is not None and not judging.is_judged else None
        sources: list[Any] = [channel] if answers is None else [channel, answers]
        readable = select.select(sources, [], [], waits_s)[0]
        if answers in readable:
            worker.judged()
        elif not readable and not worker.plays and judging is not None:
            judging.ask(now=True)
        if channel in readable:
            data = channel.recv(_BYTES)
            if not data:
                return
            *lines, came = (came + data).split(b"\n")
            for line in lines:
                worker.hear(json.loads(line))
        if worker.plays:
            worker.play()


if __name__ == "__main__":
    main(int(sys.argv[1]))
