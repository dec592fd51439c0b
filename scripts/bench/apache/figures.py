"""Samples, how they are taken, and what is made of those of several rounds."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from scripts.bench.apache.servers import cpu_s

__all__ = ["ECHO", "Case", "Measure", "Sample", "Stopwatch", "in_turns"]

ECHO: Final = "echo"  # measured beside the brokers
DIGITS: Final = 4


class Sample(NamedTuple):
    """One measurement.

    Attributes:
        rate: Messages or calls a second.
        broker_us: CPU time of the broker for a message or call.
        client_share: CPU time of the client, in cores.
        broker_share: CPU time of the broker, in cores.
    """

    rate: float
    broker_us: float = 0.0
    client_share: float = 0.0
    broker_share: float = 0.0


Measure = Callable[[], Sample]


class Stopwatch:
    """Runs from its making on: time, and CPU time of a broker and of its client."""

    def __init__(self, broker: int, client: int) -> None:
        self._pids = (broker, client)
        self._began = (time.perf_counter(), cpu_s(broker), cpu_s(client))

    def sample(self, messages: int, took_s: float | None = None) -> Sample:
        """What was done since.

        Args:
            took_s: How long it took by the client's clock, by default until now.
        """
        began_s, *cpu_began = self._began
        took_s = time.perf_counter() - began_s if took_s is None else took_s
        broker_s, client_s = (cpu_s(pid) - before for pid, before in zip(self._pids, cpu_began, strict=True))
        return Sample(messages / took_s, broker_s / max(messages, 1) * 1e6, client_s / took_s, broker_s / took_s)


def in_turns(
    cases: Mapping[str, Mapping[str, Measure]], rounds: int, tell: Callable[[str, int], None]
) -> dict[str, "Case"]:
    """Measure each case with each of its brokers in each round, so that all see the same machine.

    Args:
        cases: By name, then by the key of a broker.
        tell: Gets the name of a case and 1 after each measurement.
    """
    found: dict[str, dict[str, list[Sample]]] = {name: {key: [] for key in runs} for name, runs in cases.items()}
    for _ in range(rounds):
        for name, runs in cases.items():
            for key, measure in runs.items():
                found[name][key].append(measure())
                tell(name, 1)
    return {name: Case(samples) for name, samples in found.items()}


class Case:
    """The samples of one case by broker, in the order of the rounds."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]]) -> None:
        self.samples = samples

    def median(self, key: str, attribute: str = "rate") -> float:
        found: list[float] = [getattr(sample, attribute) for sample in self.samples[key]]
        return statistics.median(found)

    def ratio(self, key: str, other: "Case", other_key: str) -> float:
        """How many times the rate of the other: the median of the ratios within a round."""
        return _median_ratio([one.rate for one in self.samples[key]], [one.rate for one in other.samples[other_key]])

    def cpu_ratio(self, key: str, other: "Case", other_key: str) -> float:
        """How many times less CPU time the broker used for one: the median of the ratios within a round."""
        mine = [one.broker_us for one in self.samples[key]]
        return _median_ratio([one.broker_us for one in other.samples[other_key]], mine)

    def to_json(self) -> dict[str, Any]:
        return {
            key: [[_rounded(number) for number in sample] for sample in found] for key, found in self.samples.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Case":
        return cls({key: [Sample(*numbers) for numbers in found] for key, found in data.items()})


def _median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(one / max(other, 1e-9) for one, other in zip(above, below, strict=True))


def _rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")
