"""Stories: `@experiment(...)` on an `async def story(cluster)` makes an Experiment of it."""

import inspect
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from lockstep.client import Message
from lockstep.remoting.texts import known_names
from lockstep.simulation.lab.durations import duration_ms, duration_text
from lockstep.simulation.lab.experiment import LOCKING, FaultEvent, LockMode, SeedResult
from lockstep.simulation.lab.faults.swarm import draw_faults
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.faults.text import FaultError, check_hosts, fault_text, read_fault, unknown_fault
from lockstep.simulation.lab.findings import FENCED_OUT, Wrong, time_of
from lockstep.simulation.lab.parameters import PARAMETERS, read_parameters, why_no_parameter
from lockstep.simulation.lab.report import owner_changes
from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.lab.setup import Setup, Store, Strategy
from lockstep.simulation.lab.user.app import UserApp
from lockstep.simulation.lab.user.settings import read_settings
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.world import World

__all__ = ["ALL_FAULTS", "PlayedStory", "Story", "StoryPlan", "experiment", "setup_of"]

StoryBody = Callable[[Any], Awaitable[None]]
ALL_FAULTS: Final = (
    "kill", "power-off", "leave", "stall", "sleep", "cut", "cut-one-side", "partition", "hold", "restart-broker",
)  # fmt: skip
_AFTER_LIFE_MS: Final = 1_800_000  # to settle, and for all shutdowns
_DRAIN_MS: Final = 500
_LEFT_WORK_MIN: Final = 2  # calls of one process
_OF_SETUP: Final = [one.name for one in fields(Setup)]


@dataclass(frozen=True, kw_only=True)
class StoryPlan(Setup):
    """A Setup with its faults.

    Args:
        strict: with fenced locks, what a fence keeps out is a violation too (docs/fencing.md).
    """

    seed: int
    events: tuple[FaultEvent, ...] = ()
    strict: bool = False

    @property
    def limit_ms(self) -> int:
        return self.life_ms + _AFTER_LIFE_MS

    @property
    def options(self) -> SimulationOptions:
        return SimulationOptions(drain_ms=_DRAIN_MS)

    def smaller(self) -> Iterator[Self]:
        """Fewer faults, then fewer members, queues, messages, then a shorter life."""
        count = len(self.events)
        for size in sorted({count, count // 2, count // 4, 1}, reverse=True):
            for first in range(0, count, size) if 0 < size <= count else ():
                yield replace(self, events=self.events[:first] + self.events[first + size :])
        used = {name for event in self.events for name in (event.target, event.other)}
        if self.consumers > 1 and self.members[-1] not in used:
            yield replace(self, consumers=self.consumers - 1)
        if self.queues > 1:
            yield replace(self, queues=self.queues // 2)
        if self.rate > 0.1:
            yield replace(self, rate=self.rate / 2)
        last_ms = max((event.at_ms + event.duration_ms for event in self.events), default=0) + 10_000
        if self.life_ms > last_ms:
            yield replace(self, life_ms=last_ms)


class PlayedStory:
    """Runs the body of a story on a cluster, and then what is left of its plan."""

    def __init__(self, world: World, plan: StoryPlan, story: "Story") -> None:
        self.plan = plan
        app = story.app() if story.app is not None else None
        self.cluster = StoryCluster(world, plan, plan.events, app, story.message)
        self.findings = self.cluster.findings
        self._body = story.body

    async def run(self) -> None:
        await self._body(self.cluster)
        await self.cluster.finish()
        await self.cluster.shut_down()
        self._judge()
        self.cluster.world.power_off()  # a call that runs on may outlive its consumer

    def _judge(self) -> None:
        """What the judge of order found becomes findings, each with its two last records."""
        report, numbers = self.cluster.judge(), self.cluster.record_numbers()
        fenced_out = FENCED_OUT if self.plan.fenced and not self.plan.strict else frozenset()
        for kind, count in report.violation_counts.items():
            if kind in fenced_out:
                self.findings.sometimes[f"fenced out: {kind}"] += count
        for found in report.violations:
            if found.kind not in fenced_out:
                places = [place for record in found.evidence[-2:] if (place := numbers(record)) is not None]
                last = found.evidence[-1] if found.evidence else {}
                queue = f"{last['topic']}/{last['broker']}/{last['queue_id']}" if "queue_id" in last else ""
                at_ms = max(map(time_of, found.evidence), default=None)
                self.findings.add(str(found.kind), found.sentence, queue=queue, at_ms=at_ms, evidence=tuple(places))
        if report.lost:
            failed = len(self.cluster.sends.failed)
            beside = f"; the sends of {failed} others failed" if failed else ""
            self.findings.add("lost", f"{report.lost} messages were sent and never handled{beside}.")
        self._find_left_work()
        for cause, count in report.duplicates.items():
            self.findings.sometimes[f"duplicates: {cause}"] += count
        self.findings.sometimes["takeovers"] += owner_changes(self.cluster, report)
        self.findings.sometimes += Counter()  # without zeros

    def _find_left_work(self) -> None:
        """What calls of listeners left behind: a task that one call starts for all is none."""
        lines = [line for line in self.cluster.log if line.event == "listener_left_work_seen"]
        by_host = Counter((line.fields["work"], line.host) for line in lines)
        for work in dict.fromkeys(line.fields["work"] for line in lines):
            count = sum(count for (name, _), count in by_host.items() if name == work)
            if max(count for (name, _), count in by_host.items() if name == work) >= _LEFT_WORK_MIN:
                text = (
                    f"{count} calls of the listener returned while a {work} went on: their messages count as handled, "
                    "and the next ones of their keys begin; await it in the call"
                )
                first = next(line for line in lines if line.fields["work"] == work)
                self.findings.add(Wrong.WORK_AFTER_CALL, text, at_ms=first.at_ms)


@dataclass(frozen=True)
class Story:
    """An Experiment, see `experiment`."""

    name: str
    summary: str
    body: StoryBody
    setup: StoryPlan
    swarm: tuple[str, ...] = ()
    faults: int = 0
    app: Callable[[], UserApp] | None = None
    message: Callable[..., Message] | None = None
    modules: tuple[str, ...] = ()
    fails_in: tuple[LockMode, ...] = (LockMode.FENCED,)
    takes: Callable[[StoryPlan], int] | None = None

    @property
    def modes(self) -> tuple[LockMode, ...]:
        return tuple(LockMode)

    @property
    def sometimes(self) -> Mapping[LockMode, tuple[str, ...]]:
        takeovers = ("takeovers", *self.swarm) if self.swarm else ()
        return {**dict.fromkeys(LOCKING, takeovers), LockMode.FIFO: self.swarm}

    def draw(self, seed: int, mode: LockMode) -> StoryPlan:
        plan = replace(self.setup, seed=seed, lock_mode=mode)
        if self.swarm and not plan.events:
            rng = random.Random(f"{seed}/faults")
            plan = replace(plan, events=draw_faults(rng, plan, self.swarm, self.faults))
        return plan

    def build(self, world: World, plan: StoryPlan) -> PlayedStory:
        return PlayedStory(world, plan, self)

    def fails(self, outcome: SeedResult) -> bool:
        return bool(outcome.error or (outcome.wrong and outcome.mode in self.fails_in))

    def with_setup(self, setup: Mapping[str, Any], events: Sequence[FaultEvent] = ()) -> "Story":
        """The story with another setup, and, if there are any, these faults. Raises FaultError, ValueError.

        A story whose acts take a time lives at least so long.
        """
        for name in setup:
            if name not in _OF_SETUP:
                raise ValueError(f"a setup has no {name}; {known_names(name, _OF_SETUP)}")
        known, given = self.setup.parameters, setup.get("parameters", {})
        for name, value in given.items():
            if why := why_no_parameter(name, value, known):
                raise ValueError(why)
        plan = replace(self.setup, **{**setup, "parameters": {**known, **given}})
        if self.takes is not None:
            plan = replace(plan, life_ms=max(plan.life_ms, self.takes(plan)))
        for event in events:
            check_hosts(event, plan.hosts)
            if event.at_ms >= plan.life_ms:
                raise FaultError(f"{fault_text(event)}: the run ends after {duration_text(plan.life_ms)}")
        return replace(self, setup=replace(plan, events=tuple(events) or plan.events))

    def with_settings(self, *, consumer: Sequence[str] = (), broker: Sequence[str] = ()) -> "Story":
        """The story with settings as "NAME=VALUE", besides its own ones. Raises SettingError."""
        setup = self.setup
        of_consumers = {**setup.consumer, **read_settings("consumer", consumer, setup.consumer)}
        of_brokers = {**setup.broker, **read_settings("broker", broker, setup.broker_settings)}
        return replace(self, setup=replace(setup, consumer=of_consumers, broker=of_brokers))

    def run(self, *, seed: int = 1, lock_mode: LockMode | str | None = None) -> Run:
        """Run one seed."""
        return run_plan(self, self.draw(seed, LockMode(lock_mode or self.setup.lock_mode)))


def experiment(
    *,
    name: str = "",
    swarm: Sequence[str] = (),
    faults: int = 3,
    events: Sequence[str] = (),
    app: Callable[[], UserApp] | None = None,
    message: Callable[..., Message] | None = None,
    modules: Sequence[str] = (),
    fails_in: tuple[LockMode, ...] = (LockMode.FENCED,),
    takes: Callable[[StoryPlan], int] | None = None,
    **setup: Any,
) -> Callable[[StoryBody], Story]:
    """Make an Experiment of an `async def story(cluster: StoryCluster)`; the docstring is its summary.

    What the story does not do itself is done when it returns: the cluster starts, lives, is healed and judged.

    Args:
        name: empty: that of the function.
        swarm: kinds of faults; each seed has a part of them.
        faults: how many a seed draws of the swarm.
        events: faults that every seed has, as "kill c1@30s"; then none is drawn.
        app: makes the application for a run; None: the lab's listener, unless the story gives one to `start`.
        message: makes a message of its number, or of that and the numbers that were given up, with the reason; None:
            the number as text, with keys in turn.
        modules: in which the guard against nondeterminism looks for what was imported by name.
        fails_in: the lock modes in which a violation is a failure; with RocketMQ's locks some are expected.
        takes: how long the acts of the story take, in ms; None: as long as its life.
        setup: arguments of Setup, and the story's parameters (see PARAMETERS); durations also as "3m", `work` and
            `life` for `work_ms` and `life_ms`.

    Raises:
        FaultError: an event is no fault, or a kind is unknown.
        ValueError: a duration is none.
        TypeError: an argument of Setup is unknown, or the story is no `async def`.
    """
    for kind in swarm:
        if kind not in FAULTS:
            raise FaultError(unknown_fault(kind))
    plan = StoryPlan(seed=1, events=tuple(map(read_fault, events)), **setup_of(setup))

    def decorate(body: StoryBody) -> Story:
        if not inspect.iscoroutinefunction(body):
            raise TypeError(f"the story {body.__name__} is a plain function; write async def {body.__name__}(cluster)")
        summary = (inspect.getdoc(body) or "").partition("\n\n")[0].replace("\n", " ")
        where = tuple(dict.fromkeys((body.__module__, *modules)))
        story = Story(
            name or body.__name__, summary, body, plan, tuple(swarm), faults, app, message, where, fails_in, takes
        )
        return story.with_setup({}, plan.events)

    return decorate


def setup_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of Setup of what people write. Raises ValueError with a sentence."""
    setup = {key: value for key, value in arguments.items() if key not in PARAMETERS}
    for key in ("consumer", "broker", "parameters"):
        if not isinstance(setup.get(key, {}), Mapping):
            raise ValueError(f"{key} is {setup[key]!r}, no settings by their names")
    if len(setup) < len(arguments):
        own = {key: value for key, value in arguments.items() if key in PARAMETERS}
        setup["parameters"] = {**setup.get("parameters", {}), **read_parameters(own)}
    for short in ("work", "life"):
        if short in setup:
            value = setup.pop(short)
            setup[f"{short}_ms"] = duration_ms(value) if isinstance(value, str) else value
    if setup.get("life_ms") == 0:
        raise ValueError("a run of 0s shows nothing; it lasts longer")
    for key, kind in (("lock_mode", LockMode), ("store", Store), ("strategy", Strategy)):
        if key in setup:
            if setup[key] not in list(kind):
                raise ValueError(f"{key.replace('_', ' ')} {setup[key]!r} is not allowed; use {' or '.join(kind)}")
            setup[key] = kind(setup[key])
    return setup
