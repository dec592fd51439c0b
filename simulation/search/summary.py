"""Outcomes of a sweep, counted."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.simulation.lab.experiment import Experiment, LockMode, Outcome

__all__ = ["Summary"]

_SHARE_MIN: Final = 0.05


@dataclass
class Summary:
    """Outcomes of the seeds of an experiment, counted by mode."""

    experiment: Experiment[Any]
    seeds: Counter[LockMode] = field(default_factory=Counter)
    wrong: dict[LockMode, Counter[str]] = field(default_factory=lambda: {mode: Counter() for mode in LockMode})
    sometimes: dict[LockMode, Counter[str]] = field(default_factory=lambda: {mode: Counter() for mode in LockMode})
    failing: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.seeds[outcome.mode] += 1
        self.wrong[outcome.mode].update(list(outcome.wrong) + (["error"] if outcome.error else []))
        self.sometimes[outcome.mode].update(list(outcome.sometimes))
        if self.experiment.fails(outcome):
            self.failing.append(outcome)

    def too_rare(self) -> list[tuple[LockMode, str, float]]:
        """(mode, what, share of the seeds) of what happened too rarely."""
        return [
            (mode, name, share)
            for mode, count in self.seeds.items()
            for name in self.experiment.sometimes[mode]
            if (share := self.sometimes[mode][name] / count) < _SHARE_MIN
        ]
