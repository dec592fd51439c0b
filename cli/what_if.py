"""`lockstep doctor --what-if STORY`: runs a story of operators on virtual time with what a live group has."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple

from lockstep.cli.output import CliError, OutputFormat, StderrLog, counted, json_line, note, write_out
from lockstep.client import ConsumerConfig, MessageQueue
from lockstep.client.admin.client import AdminClient
from lockstep.client.diagnosis.facts import GroupFacts, MemberFacts
from lockstep.client.diagnosis.gather import gather
from lockstep.protocol.names import check_group, is_retry_topic
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.percentiles import percentile
from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.lab.registry import UnknownExperimentError
from lockstep.simulation.lab.setup import Strategy
from lockstep.simulation.lab.user.settings import read_settings, setting_owners
from lockstep.simulation.search.compare import Comparison, compare
from lockstep.simulation.search.compare_texts import comparison_lines, comparison_row
from lockstep.simulation.search.figures import FIGURES
from lockstep.simulation.search.processes import ProcessKilledError, end_processes
from lockstep.simulation.search.ways import Base, Way, story_of

__all__ = ["Live", "Question", "answer", "bounded", "live_of", "sentence_of", "tell", "ways_of"]

_RATE_S: Final = 5  # so long are messages counted
_RATE_MIN: Final = 0.2  # messages a second; with none, no queue could wait for its owner
_MESSAGES_MAX: Final = 50_000  # of a run: half a minute of a core
_LONGEST: Final = next(figure for figure in FIGURES if figure.name == "still_longest_ms")
_UNTIL: Final = 99
_TOLD_EVERY_NS: Final = 2_000_000_000
_WORK_MS: Final = 20
_KEYS_A_QUEUE: Final = 4
_OWN: Final = ConsumerConfig()
_MODES: Final = {"faithful": "with faithful locks", "fenced": "with fenced locks", "fifo": "as a FIFO group"}


class Live(NamedTuple):
    """What a story needs to know of a live group.

    Args:
        setup: arguments of Setup, as people write them.
        consumer: settings of its members as NAME=VALUE, where they are not the simulator's own.
        mode: how it keeps its members apart.
        guessed: what was taken for what no member or broker told, or for what would cost too much.
    """

    setup: dict[str, Any]
    consumer: tuple[str, ...]
    mode: LockMode
    guessed: tuple[str, ...] = ()


_UNKNOWN: Final = Live({}, (), LockMode.FAITHFUL)


class Question(NamedTuple):
    """
    Args:
        settings: what differs from the live group, as NAME=VALUE: options and parameters of the story.
    """

    story: str
    group: str
    settings: tuple[str, ...]
    seeds: int


async def answer(question: Question, name_server: str, output: OutputFormat) -> None:
    """Run the story and print what it costs, as the group is and with other locks.

    Raises:
        CliError: the group has no members, the story is none, or a run did not reach its end.
    """
    story, group = question.story, question.group
    check_group(group)
    _check(Base(story), ways_of(_UNKNOWN, question.settings))  # a wrong word, before messages are counted
    runtime = AsyncioRuntime()
    async with AdminClient(name_server=name_server, runtime=runtime, log=StderrLog(verbose=False)) as admin:
        began_ns = runtime.monotonic_ns()
        before = await _facts(admin, runtime, group)
        if not before.members:
            raise CliError(f"group {group} has no members that are online: there is nothing to play {story} with")
        note(f"counting messages for {_RATE_S} s")
        await asyncio.sleep(_RATE_S)
        # From look to look it is longer than the wait: to look at a large group takes seconds.
        between_s = (runtime.monotonic_ns() - began_ns) / 1e9
        after = await _facts(admin, runtime, group)
    live = live_of(before, after, between_s)
    ways = ways_of(live, question.settings)
    _check(Base(story, live.setup, consumer=live.consumer), ways)
    live = bounded(live, story, ways)
    base = Base(story, live.setup, consumer=live.consumer)
    tell(await _compared(base, ways, question.seeds, runtime), live.guessed, output)


def _check(base: Base, ways: Sequence[Way]) -> None:
    try:
        for way in ways:
            story_of(base, way)
    except (UnknownExperimentError, ValueError) as error:
        raise CliError(str(error)) from None


def tell(comparison: Comparison, guessed: Sequence[str], output: OutputFormat) -> None:
    """Print what was found. Then raises CliError if a run did not reach its end."""
    if output is OutputFormat.JSON:
        row = comparison_row(comparison) | {"sentence": sentence_of(comparison), "guessed": list(guessed)}
        write_out(json_line(row).encode("utf-8", "replace") + b"\n")
    else:
        lines = [sentence_of(comparison), "", *comparison_lines(comparison)]
        lines += [f"Taken instead of what the group has, or does not tell: {'; '.join(guessed)}."] if guessed else []
        write_out("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    if errors := comparison.errors():
        raise CliError(f"{len(errors)} of {len(comparison.trials)} runs did not reach their end")


async def _compared(base: Base, ways: Sequence[Way], seeds: int, runtime: Runtime) -> Comparison:
    """Compare on a thread, so that the loop hears of Ctrl-C. Raises CliError."""
    count = seeds * len(ways)
    # Never in this process (one job): the simulator's guard would refuse clocks to the loop.
    run = partial(compare, base, ways, range(1, seeds + 1), jobs=max(os.cpu_count() or 1, 2))
    ended = runtime.new_worker_pool("what-if", 1).submit(partial(run, on_progress=_progress(runtime, count)))
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        end_processes()
        with suppress(ProcessKilledError):
            await ended  # or the end of this process would wait for runs that nobody wants
        raise
    except ProcessKilledError:
        raise CliError("a process of the runs was killed, perhaps for memory") from None


def ways_of(live: Live, settings: Sequence[str]) -> list[Way]:
    """As the group is, then with the lock mode that the settings name, or else with each other mode that has locks.

    STICKY is for fenced locks: beside it the group is played with RocketMQ's strategy where its locks are faithful.
    """
    own = dict(text.partition("=")[::2] for text in settings)
    others = [own.pop("lock_mode")] if "lock_mode" in own else LOCKING
    faithful = own | {"strategy": str(Strategy.AVG)} if own.get("strategy") == Strategy.STICKY else own
    modes = dict.fromkeys(map(str, (live.mode, *others)))
    return [Way((("lock_mode", mode), *(faithful if mode == LockMode.FAITHFUL else own).items())) for mode in modes]


def bounded(live: Live, story: str, ways: Sequence[Way]) -> Live:
    """With fewer messages a second where a run would have too many: its cost grows with them.

    A rate that the settings name stays.
    """
    base = Base(story, live.setup, consumer=live.consumer)
    told = [way for way in ways if "rate" not in dict(way.values)]
    setups = [getattr(story_of(base, way)[0], "setup", None) for way in told]
    lives_ms = [setup.life_ms for setup in setups if setup is not None]
    if not lives_ms:
        return live
    rate, most = live.setup["rate"], round(max(_MESSAGES_MAX * 1000 / max(lives_ms), _RATE_MIN), 2)
    if rate <= most:
        return live
    text = f"{most:,} messages a second for {rate:,}, so that a run has no more than {_MESSAGES_MAX:,}"
    return live._replace(setup={**live.setup, "rate": most}, guessed=(*live.guessed, text))


async def _facts(admin: AdminClient, runtime: Runtime, group: str) -> GroupFacts:
    return next(one for one in (await gather(admin, runtime, group)).groups if one.name == group)


def _progress(runtime: Runtime, count: int) -> Callable[[Comparison], object]:
    last_ns = runtime.monotonic_ns()

    def tell(so_far: Comparison) -> None:
        nonlocal last_ns
        if runtime.monotonic_ns() - last_ns >= _TOLD_EVERY_NS:
            last_ns = runtime.monotonic_ns()
            note(f"{len(so_far.trials)} of {count} runs")

    return tell


def live_of(before: GroupFacts, after: GroupFacts, seconds: float) -> Live:
    """What two looks at a group tell, so many seconds apart.

    Members without a running info, as those of some languages, have RocketMQ's own settings here.
    """
    told = [member for member in before.members if member.has_info]
    guessed = [] if len(told) == len(before.members) else ["RocketMQ's own settings for members without a running info"]
    # A queue that has no stored offset yet is only in the table of its owner.
    owned = (queue for member in after.members for queue in member.process_queues)
    known = {*before.queues, *after.queues, *owned}
    topic = _topic(known)
    queues = [queue for queue in known if queue.topic == topic]
    brokers = {queue.broker_name for queue in queues}
    both = [queue for queue in queues if queue in before.queues and queue in after.queues]
    sent = sum(after.queues[queue].end - before.queues[queue].end for queue in both)
    rate = round(sent / seconds, 2)
    if len({queue.topic for queue in known if not is_retry_topic(queue.topic)}) > 1:
        guessed.append(f"topic {topic} alone of those that the group consumes")
    if rate < _RATE_MIN:
        guessed.append(f"{_RATE_MIN} messages a second, as next to none came")
    works_ms = [status.consume_rt for member in told for status in member.statuses.values() if status.consume_rt > 0]
    if not works_ms:
        guessed.append(f"{_WORK_MS} ms a call")
    setup: dict[str, Any] = {
        "consumers": len(before.members),
        "queues": max(len(queues) // max(len(brokers), 1), 1),
        "brokers": max(len(brokers), 1),
        "rate": max(rate, _RATE_MIN),
        "keys": max(_KEYS_A_QUEUE * len(queues), 1),
        "work": f"{max(round(median(works_ms)), 0) if works_ms else _WORK_MS}ms",
    }
    return Live(setup, _settings(told), _mode(before), tuple(guessed))


def _topic(queues: Iterable[MessageQueue]) -> str:
    """The one with most queues, of those that the group subscribes to."""
    counts = Counter(queue.topic for queue in queues)
    return min(counts, key=lambda topic: (-counts[topic], topic), default="")


def _settings(members: Sequence[MemberFacts]) -> tuple[str, ...]:
    """What most members have, of the settings that the simulator can set."""
    counts = Counter(one for member in members for one in member.properties.items() if setting_owners(one[0]))
    found: dict[str, str] = {}
    for (name, value), _ in counts.most_common():
        found.setdefault(name, value)
    texts = []
    for name, value in found.items():
        try:
            read = read_settings("consumer", [f"{name}={value}"], {})
        except ValueError:
            continue  # of another make of clients: its value is none of ours
        if any(getattr(_OWN, key) != one for key, one in read.items()):
            texts.append(f"{name}={value}")
    return tuple(texts)


def _mode(group: GroupFacts) -> LockMode:
    if any(member.pops for member in group.members):
        return LockMode.FIFO
    return LockMode.FENCED if any(row.epoch for row in (group.locks or {}).values()) else LockMode.FAITHFUL


def sentence_of(comparison: Comparison) -> str:
    """ "Your next deploy of 12 members: longest standstill 41.0 s (p99 of 100 seeds); with fenced locks 0.2 s." """
    base = comparison.base
    texts = []
    for way, values in enumerate(comparison.ways):
        longest = comparison.values(way, _LONGEST.name)
        value = _LONGEST.text(percentile(longest, _UNTIL)) if longest else "unknown"
        texts.append(value if not way else f"{_MODES[dict(values.values)['lock_mode']]} {value}")
    seeds = len({trial.seed for trial in comparison.trials})
    members = dict(comparison.ways[0].values).get("consumers", base.setup["consumers"])
    return (
        f"Your next {base.name} of {counted(int(members), 'member')}: longest standstill {texts[0]} "
        f"(p99 of {counted(seeds, 'seed')}){''.join(f'; {text}' for text in texts[1:])}."
    )
