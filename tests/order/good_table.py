"""How many good histories raise an alarm (none), and how many stay undecided: the second table of docs/judge.md."""

import copy
import random
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from lockstep.order import OrderReport, check_traces
from tests.order.good_histories import GOOD
from tests.order.key_histories import key_histories
from tests.order.legal_histories import histories
from tests.order.scripts import traces_of
from tests.order.stories import Story
from tests.order.ways import ONE_CLOCK, SEVERAL_CLOCKS, Records, Way, as_it_is
from tests.order.worlds import run

__all__ = ["ONE_CLOCK_ALONE", "Good", "good_table", "judged"]

ONE_CLOCK_ALONE: Final = {"an emptied store"}  # only the time says to which store a send belongs
_WAYS: Final = {way.__name__.replace("_", " "): way for way in (*ONE_CLOCK, *SEVERAL_CLOCKS)}


class Good(NamedTuple):
    """The reports of one sort of good histories."""

    name: str
    reports: list[OrderReport]

    @property
    def alarms(self) -> list[OrderReport]:
        """Those with a violation, a lost message or a broken line."""
        return [one for one in self.reports if one.violation_counts or one.lost or one.broken_lines]

    @property
    def undecided(self) -> int:
        return sum(bool(report.undecided_counts) for report in self.reports)


def judged(generated: int, runs: int) -> Iterator[Good]:
    """Judge the written histories, and so many that are generated and simulated, each in several ways."""
    scripts = [(name, list(traces_of(script).values())) for name, script in GOOD.items()]
    stories = [(str(number), story) for number, story in enumerate(_generated(generated))]
    for name, way in _WAYS.items():
        several = way in SEVERAL_CLOCKS
        chosen = [one for one in scripts if not (several and one[0] in ONE_CLOCK_ALONE)]
        yield Good(f"written by hand, {name}", list(_judged(chosen, way)))
        if way is as_it_is or several:
            yield Good(f"generated, {name}", list(_judged(stories, way)))
    together, apart = [], []
    for seed in range(runs):
        played = run(seed, ordering=("queue", "key")[seed % 2])
        together.append(check_traces(played.one_clock))
        apart.append(check_traces(played.own_clocks))
    yield Good("simulated, on one clock", together)
    yield Good("simulated, every machine on its own clock", apart)


def _judged(found: Iterable[tuple[str, list[Records]]], way: Way) -> Iterator[OrderReport]:
    for name, traces in found:
        yield check_traces(way(copy.deepcopy(traces), random.Random(name)))


def _generated(count: int) -> list[list[Records]]:
    return [*_first(count, histories()), *_first(count, key_histories())]


def _first(count: int, strategy: SearchStrategy[Story]) -> list[list[Records]]:
    """So many histories of a generator, the same ones in each run."""
    found: list[list[dict[str, Any]]] = []

    @settings(
        max_examples=count, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), deadline=None,
    )  # fmt: skip
    @given(strategy)
    def collect(story: Story) -> None:
        found.append(copy.deepcopy(list(story.traces.values())))  # type: ignore[arg-type]

    collect()
    return found  # type: ignore[return-value]


def good_table(found: Iterable[Good]) -> str:
    """For docs/judge.md."""
    lines = ["| good histories | judged | alarms | undecided |", "|---|---|---|---|"]
    total = [0, 0, 0]
    for good in found:
        counts = len(good.reports), len(good.alarms), good.undecided
        total = [one + more for one, more in zip(total, counts, strict=True)]
        lines.append(f"| {good.name} | {' | '.join(map(str, counts))} |")
    lines.append(f"| **all** | {' | '.join(f'**{count}**' for count in total)} |")
    return "\n".join(lines) + "\n"
