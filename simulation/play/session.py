"""What the page asks of a run: play, pause, step, go back, touch; one side or two of one plan.

The sides go on together: each step has one end for all, and the next begins when all are there.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from lockstep.console.events import Feed
from lockstep.simulation.play.choice import Choice, names_file
from lockstep.simulation.play.refusal import RefusedError
from lockstep.simulation.play.side import Json, Side, SideDiedError

__all__ = ["Session"]

_TICK_S: Final = 0.05  # of real time, for a step
_LOOK_S: Final = 0.09  # between two scenes
_ALONE_S: Final = 3.0  # then a run that nobody watches pauses
_SILENCE_S: Final = 15.0
_TIMES: Final = (0.1, 600.0)
_SECOND_MS: Final = 1000
_END_MS: Final = 2**53
_END_S: Final = 2.0  # a process that plays is heard after 0.03 s, but for a listener that does not return
_MEASURED_S: Final = 1.0
_SLOWER, _FASTER = 1.2, 0.8  # of a tick: then the next step is smaller, or larger


class _Touch(NamedTuple):
    """`run`: the one in which it was made."""

    at_ms: int
    line: str
    run: int


class Session:
    """The controller of one page, which may be open in several browsers.

    Args:
        token: an act has to bring it.
        modes: the lock mode of each side; empty: that of the story.
    """

    def __init__(self, choice: Choice, modes: Sequence[str], token: str) -> None:
        self.token = token
        self._choice = choice
        self._given = choice.what
        self._modes = list(modes)
        self._sides: list[Side] = []
        self._opened: Json = {}
        self._touches: list[_Touch] = []
        self._run = 0
        self._speed = 1.0
        self._reached = 0.0
        self._playing = False
        self._busy = ""
        self._goal_ms: int | None = None  # of a journey
        self._work: asyncio.Task[None] | None = None
        self._touching = False  # the work is a way back to the moment of a touch
        self._acting = asyncio.Lock()
        self._feed = Feed()
        self._viewers = 0
        self._acts: dict[str, Callable[[Json], Awaitable[None]]] = {
            "play": self._play,
            "pause": self._pause,
            "event": self._event,
            "second": self._second,
            "to": self._to,
            "finish": self._finish,
            "restart": self._restart,
            "undo": self._undo,
            "touch": self._touch,
            "sides": self._side_by_side,
            "open": self._open_another,
        }

    async def start(self) -> None:
        """Start the sides. Raises RefusedError: that cannot be played."""
        await self._open(self._choice, self._modes)

    def end_streams(self) -> None:
        """End what the pages read."""
        self._feed.end()

    async def end(self) -> None:
        """End all processes, also those that do not stop."""
        work = self._work
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._stop()
        await asyncio.gather(*(side.end() for side in self._sides))
        if work is not None:
            work.cancel()

    @property
    def pids(self) -> list[int]:
        """Of the processes that play."""
        return [side.pid for side in self._sides if side.pid is not None]

    @property
    def is_playing(self) -> bool:
        """Whether it goes on by itself, until somebody pauses it."""
        return self._playing

    # What the page is shown ----------------------------------------------------------------------------------

    async def scenes(self) -> AsyncGenerator[Json, None]:
        """The scenes of one connection: the whole story first, then what is new. A slow reader gets the newest."""
        self._viewers += 1
        loop, version, counts, run = asyncio.get_running_loop(), -1, list[Json](), -1
        try:
            while not self._feed.is_ended:
                if not await self._feed.wait_newer(version, _SILENCE_S):
                    continue
                version = self._feed.version
                if run != self._run or len(counts) != len(self._sides):
                    run, counts = self._run, [{} for _ in self._sides]
                yield self._scene(counts)
                await asyncio.sleep(_LOOK_S)
        finally:
            self._viewers -= 1
            if not self._viewers:
                loop.call_later(_ALONE_S, self._if_alone)

    async def judged(self) -> None:
        """Wait until the judge has read all that is shown, unless the run is played on."""
        while not (self._feed.is_ended or self._playing or all(side.is_judged for side in self._sides)):
            await self._feed.wait_newer(self._feed.version, _SILENCE_S)

    def _scene(self, counts: list[Json]) -> Json:
        sides = [side.new_since(seen) for side, seen in zip(self._sides, counts, strict=True)]
        touches = [touch.line for touch in self._touches]
        return {
            "run": self._run,
            "playing": self._playing,
            "speed": self._speed,
            "reached": round(self._reached, 2) if self._playing else 0,
            "busy": self._busy_with(),
            "title": self._opened.get("title", ""),
            "seed": self._opened.get("seed", 0),
            "plan": [*self._opened.get("plan", ()), *touches],
            "touches": touches,
            "can_touch": all(side.scene.get("can_touch", False) for side in self._sides),
            "sides": sides,
        }

    def _busy_with(self) -> Json | None:
        """What goes on, and how far it is; the page makes a sentence of it. None: nothing goes on."""
        passes = [side.passes_ms for side in self._sides if side.passes_ms is not None]
        if self._goal_ms is None or not passes:
            return {"what": self._busy} if self._busy else None
        if self._goal_ms == _END_MS:
            return {"what": "plays_to_end", "at_ms": min(passes)}
        return {"what": "replays_to", "to_ms": self._goal_ms, "share": 100 * min(passes) // max(self._goal_ms, 1)}

    def _if_alone(self) -> None:
        if not self._viewers:
            self._playing = False

    async def home(self) -> dict[str, str]:
        """What repeats the run of the first side elsewhere. Raises RefusedError."""
        async with self._acting:
            await self._stop()
            return dict((await self._first("home"))["home"])

    async def timeline(self) -> str:
        """The page with the timelines of all sides. Another process makes it. Raises RefusedError."""
        async with self._acting:
            await self._stop()
            try:
                plans = [(await side.ask("plan"))["plan"] for side in self._sides]
            except SideDiedError as error:
                raise RefusedError(str(error)) from None
        maker = Side(lambda: None)
        await maker.start()
        try:
            return str((await maker.ask("timeline", plans=plans))["timeline"])
        except SideDiedError as error:
            raise RefusedError(str(error)) from None
        finally:
            await maker.end()

    # Acts ----------------------------------------------------------------------------------------------------

    async def do(self, act: Json) -> None:
        """Do an act of the page, or begin to. Raises RefusedError."""
        name = act.get("act")
        if name == "speed":
            self._speed = float(_number(act, "times", *_TIMES))
            self._feed.publish()
            return
        does = self._acts.get(str(name))
        if does is None:
            raise RefusedError(f"There is no act {name!r}.")
        async with self._acting:
            if self._touching and self._work is not None and name in ("touch", "undo"):
                await asyncio.wait([self._work])  # stopped on its way, it would touch at another moment
            if name != "play" or not self._playing:
                await self._stop()
            try:
                await does(act)
            except SideDiedError as error:
                raise RefusedError(str(error)) from None
            finally:
                self._feed.publish()

    async def _pause(self, _act: Json) -> None:
        """All has stopped already."""

    async def _second(self, _act: Json) -> None:
        self._begin(self._all_to(self._now_ms + _SECOND_MS))

    async def _to(self, act: Json) -> None:
        self._begin(self._travel(int(_number(act, "ms", 0, _END_MS))))

    async def _finish(self, _act: Json) -> None:
        self._begin(self._all_to(_END_MS))

    async def _restart(self, _act: Json) -> None:
        self._begin(self._anew(0))

    async def _undo(self, _act: Json) -> None:
        if not self._touches:
            raise RefusedError("There is no touch to undo.")
        self._touches.pop()
        self._begin(self._anew(self._now_ms))

    async def _side_by_side(self, act: Json) -> None:
        await self._open(self._choice, _modes(act), now_ms=self._now_ms, touches=self._touches)

    async def _open_another(self, act: Json) -> None:
        choice = _choice_of(act)
        # With --host the page is open to other machines: they choose no file of this one.
        if choice.what != self._given and names_file(choice.what):
            raise RefusedError(f"{choice.what} is a file. Only `lockstep-sim play {choice.what}` opens it.")
        await self._open(choice, _modes(act) if "modes" in act else self._modes)

    def _begin(self, work: Any) -> None:
        self._busy = "" if self._playing else "plays"
        self._work = asyncio.create_task(self._guarded(work), name="play work")

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except SideDiedError:
            pass  # the side says it
        finally:
            self._playing, self._goal_ms, self._busy = False, None, ""
            self._feed.publish()

    async def _stop(self) -> None:
        """Stop what is played or replayed, where it is."""
        self._playing = False
        work, self._work = self._work, None
        while work is not None and not work.done():
            for side in self._sides:
                side.hold()
            await asyncio.wait([work], timeout=_TICK_S)

    # Time ----------------------------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return max((side.now_ms for side in self._sides), default=0)

    @property
    def _is_over(self) -> bool:
        return all(side.is_over for side in self._sides)

    async def _first(self, do: str, **order: Any) -> Json:
        try:
            return await self._sides[0].ask(do, **order)
        except SideDiedError as error:
            raise RefusedError(str(error)) from None

    async def _all(self, do: str, **order: Any) -> None:
        """Give an order to all sides, and wait for them all. Raises SideDiedError."""
        results = await asyncio.gather(*(side.ask(do, **order) for side in self._sides), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _all_to(self, ms: int) -> None:
        self._goal_ms = ms
        await self._all("to", ms=ms, look=True, shows=True)

    async def _travel(self, ms: int) -> None:
        """To a moment, also to an earlier one."""
        if ms < self._now_ms or any(side.died for side in self._sides):
            await self._anew(ms)
        else:
            await self._all_to(ms)

    async def _anew(self, ms: int) -> None:
        """Play the plan from its start to a moment."""
        self._goal_ms, self._busy = ms, "replays"
        for side in self._sides:
            if side.died:
                await side.start()
                await side.ask("open", choice=asdict(self._choice), mode=side.scene.get("mode", ""))
        self._run += 1
        for side in self._sides:
            side.forget()
        await self._all("start", touches=[touch.line for touch in self._touches], look=not ms)
        if ms:
            await self._all("to", ms=ms, look=True, shows=False)

    async def _event(self, _act: Json) -> None:
        """One event of the first side; the others go along."""
        await self._all("to", ms=self._now_ms, look=False, shows=False)
        await self._first("event")
        if len(self._sides) > 1:
            await self._all("to", ms=self._now_ms, look=True, shows=False)

    async def _play(self, _act: Json) -> None:
        if self._playing:
            return
        if self._is_over:
            raise RefusedError("The run is over. Go back, or to the start.")
        self._playing = True
        self._begin(self._playing_on())

    async def _playing_on(self) -> None:
        """Steps of a tick of real time, smaller where the run cannot go so fast."""
        loop = asyncio.get_running_loop()
        due = measured = looked = loop.time()
        at_ms = float(self._now_ms)
        measured_ms, step_ms = at_ms, 1000 * _TICK_S
        while self._playing and not self._is_over:
            began, wanted_ms = loop.time(), 1000 * _TICK_S * self._speed
            step_ms = min(step_ms, wanted_ms)
            at_ms += step_ms
            look = began - looked >= _LOOK_S
            looked = began if look else looked
            await self._all("to", ms=int(at_ms), look=look, shows=False)
            took = loop.time() - began
            if took > _SLOWER * _TICK_S:
                step_ms = max(1.0, step_ms * max(_TICK_S / took, 0.2))
            elif took < _FASTER * _TICK_S:
                step_ms *= 1.5
            if loop.time() - measured >= _MEASURED_S:
                self._reached = (at_ms - measured_ms) / 1000 / (loop.time() - measured)
                measured, measured_ms = loop.time(), at_ms
            due = max(due + _TICK_S, loop.time())
            await asyncio.sleep(due - loop.time())
        if not self._is_over:
            await self._all("to", ms=int(at_ms), look=True, shows=False)

    # The plan ------------------------------------------------------------------------------------------------

    async def _touch(self, act: Json) -> None:
        """A touch at the next moment. Those that were made later in an earlier run of the plan are dropped."""
        line = _text(act, "line")
        if self._is_over:
            raise RefusedError("The run is over: nothing can be touched any more. Go back to a moment of it.")
        now_ms = self._now_ms
        # Several may be made at one moment, each a millisecond after the one before.
        kept = [touch for touch in self._touches if touch.at_ms <= now_ms or touch.run == self._run]
        checked = await self._first("check", line=line, at_ms=now_ms + 1)
        if "refused" in checked:
            raise RefusedError(**checked["refused"])
        if len(kept) < len(self._touches):
            self._touches, self._touching = kept, True
            self._begin(self._touch_anew(line, now_ms))
        else:
            await self._touch_all(line, now_ms)

    async def _touch_anew(self, line: str, now_ms: int) -> None:
        try:
            await self._anew(now_ms)
            with suppress(RefusedError):
                await self._touch_all(line, now_ms)
        finally:
            self._touching = False

    async def _touch_all(self, line: str, now_ms: int) -> None:
        for number, side in enumerate(self._sides):
            answer = await side.ask("touch", line=line, at_ms=now_ms + 1)
            if "refused" in answer:
                raise RefusedError(**answer["refused"])
            if not number:
                self._touches.append(_Touch(answer["at_ms"], answer["touched"], self._run))

    async def _open(
        self, choice: Choice, modes: Sequence[str], *, now_ms: int = 0, touches: Collection[_Touch] = ()
    ) -> None:
        """Open a story with a side for each lock mode. Raises RefusedError; then all is as it was."""
        fresh = [Side(self._feed.publish) for _ in modes or ("",)]
        try:
            for side, mode in zip(fresh, modes or ("",), strict=True):
                await side.start()
                answer = await side.ask("open", choice=asdict(choice), mode=mode)
                if "refused" in answer:
                    raise RefusedError(**answer["refused"])
        except BaseException:
            await asyncio.gather(*(side.end() for side in fresh))
            raise
        old, self._sides = self._sides, fresh
        self._choice, self._modes, self._opened = choice, list(modes), answer["opened"]
        self._touches = list(touches)
        await asyncio.gather(*(side.end() for side in old))
        self._begin(self._anew(now_ms))


def _number(act: Json, key: str, low: float, high: float) -> float:
    value = act.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise RefusedError(f"{key} is a number from {low:g} to {high:g}.")
    return value


def _text(act: Json, key: str) -> str:
    value = act.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RefusedError(f"{key} is a text.")
    return value.strip()


def _modes(act: Json) -> list[str]:
    modes = act.get("modes")
    if not isinstance(modes, list) or not 1 <= len(modes) <= 2 or not all(isinstance(one, str) for one in modes):
        raise RefusedError("modes are one or two lock modes.")
    return modes


def _choice_of(act: Json) -> Choice:
    setup, seed = act.get("setup", {}), int(_number(act | {"seed": act.get("seed", 1)}, "seed", 0, _END_MS))
    if not isinstance(setup, dict) or not isinstance(act.get("what", ""), str):
        raise RefusedError("what is a name, and setup an object.")
    if not all(isinstance(value, str | int | float) for value in setup.values()):
        raise RefusedError("setup has texts, numbers, true and false.")
    faults = act.get("faults", [])
    if not isinstance(faults, list) or not all(isinstance(one, str) for one in faults):
        raise RefusedError("faults are texts as 'kill c1@30s'.")
    return Choice(act.get("what", ""), seed, setup, faults)
