"""The figures by which ways to run a story are compared: each is a number of what a run cost."""

from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.simulation.lab.costs import Costs
from lockstep.simulation.lab.durations import duration_words

__all__ = ["FIGURES", "Figure", "figures_of"]


class Figure(NamedTuple):
    """
    Args:
        name: in JSON and CSV, with its unit.
        title: the heading of its column.
        summary: a sentence about it.
        text: a value for people.
    """

    name: str
    title: str
    summary: str
    text: Callable[[float], str]
    value: Callable[[Costs], float]


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def _percent(value: float) -> str:
    return f"{value:.2g} %"


def _megabytes(value: float) -> str:
    return f"{value:,.0f} MB"


def _a_second(kind: str) -> Callable[[Costs], float]:
    return lambda costs: costs.asked[kind].a_second


FIGURES: Final = (
    Figure("still_p50_ms", "still, p50", "How long half of the queues stood still at most.", duration_words,
           lambda costs: costs.still_p50_ms),
    Figure("still_p99_ms", "still, p99", "How long 99 % of the queues stood still at most.", duration_words,
           lambda costs: costs.still_p99_ms),
    Figure("still_longest_ms", "still, longest", "How long the queue stood still that did so longest.", duration_words,
           lambda costs: costs.still_longest_ms),
    Figure("late", "late", "Messages that began over a second later than in a calm run.", _number,
           lambda costs: costs.late),
    Figure("duplicates", "again", "Messages that were handled more than once.", _number,
           lambda costs: costs.duplicates),
    Figure("owner_changes_a_queue", "owners", "How often a queue changed its owner, on average.", _tenths,
           lambda costs: costs.owner_changes / max(costs.queues, 1)),
    Figure("locks_a_second", "locks/s", "Lock and unlock requests a second at all brokers.", _tenths,
           _a_second("lock")),
    Figure("pulls_a_second", "pulls/s", "Pulls or pops a second at all brokers.", _tenths, _a_second("pull")),
    Figure("processor_percent", "core", "Of a core of the busiest broker, by reckoning.", _percent,
           lambda costs: 100 * costs.processor),
    Figure("memory_mb", "memory", "Of that broker beside its messages, by reckoning.", _megabytes,
           lambda costs: costs.memory_mb),
)  # fmt: skip


def figures_of(costs: Costs) -> dict[str, float]:
    """By name, rounded to what a figure is exact to."""
    return {figure.name: round(figure.value(costs), 3) for figure in FIGURES}
