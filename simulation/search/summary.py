"""Outcomes of a sweep: counted, and as a report."""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.simulation.lab.experiment import Experiment, LockMode, SeedResult
from lockstep.simulation.lab.registry import find_experiment

__all__ = ["Summary", "report"]

_SHARE_MIN: Final = 0.05
_SHOWN_MAX: Final = 20
_FEW: Final = 100  # below, a part of 5 % is met by chance


@dataclass
class Summary:
    """Outcomes of the seeds of an experiment, counted by mode."""

    name: str  # of the experiment
    seeds: Counter[LockMode] = field(default_factory=Counter)
    wrong: dict[LockMode, Counter[str]] = field(default_factory=lambda: {mode: Counter() for mode in LockMode})
    sometimes: dict[LockMode, Counter[str]] = field(default_factory=lambda: {mode: Counter() for mode in LockMode})
    failing: list[SeedResult] = field(default_factory=list)  # in order of seed and mode

    def __post_init__(self) -> None:
        self.experiment: Experiment[Any] = find_experiment(self.name)

    def add(self, outcome: SeedResult) -> None:
        """Count an outcome."""
        self.seeds[outcome.mode] += 1
        self.wrong[outcome.mode].update(list(outcome.wrong) + (["error"] if outcome.error else []))
        self.sometimes[outcome.mode].update(list(outcome.sometimes))
        if self.experiment.fails(outcome):
            insort(self.failing, outcome, key=lambda one: (one.seed, one.mode))

    def too_rare(self) -> list[tuple[LockMode, str, float]]:
        """(mode, what, share of the seeds) of what happened too rarely; "anything" if nothing happened at all."""
        rare = [
            (mode, name, share)
            for mode, count in self.seeds.items()
            for name in self.experiment.sometimes[mode]
            if (share := self.sometimes[mode][name] / count) < _SHARE_MIN
        ]
        empty = [(mode, "anything", 0.0) for mode in self.seeds if not self.sometimes[mode] and not self.wrong[mode]]
        return empty or rare

    @property
    def good(self) -> bool:
        """Whether the sweep shows that order was kept: seeds ran, none failed, and what must happen did."""
        return bool(self.seeds) and not self.failing and not self.too_rare()


def report(summary: Summary, modes: Sequence[LockMode]) -> Iterator[str]:
    """Lines of text: kinds of violations, what happened in how many seeds, what is too rare, what failed."""
    yield _row("", *modes)
    yield _row("seeds", *(f"{summary.seeds[mode]:,}" for mode in modes))
    for kind in sorted({kind for mode in modes for kind in summary.wrong[mode]}):
        yield _row(kind, *(f"{summary.wrong[mode][kind]:,}" for mode in modes))
    yield _row("no violation at all", *("-" if summary.wrong[mode] else "yes" for mode in modes))
    yield ""
    yield _row("happened in", *("% of seeds" for _ in modes))
    wanted = summary.experiment.sometimes
    for name in sorted({name for mode in modes for name in (*summary.sometimes[mode], *wanted[mode])}):
        counts = (summary.sometimes[mode][name] / max(summary.seeds[mode], 1) for mode in modes)
        yield _row(name, *(f"{100 * share:.1f}" for share in counts))
    yield ""
    for mode, name, share in summary.too_rare():
        if share or name != "anything":
            yield f"TOO RARE in {mode} mode: {name}, in {100 * share:.1f} % of the seeds"
        else:
            yield f"NOTHING HAPPENED in {mode} mode: no fault and no takeover; such a sweep proves nothing"
    few = [mode for mode, name, _ in summary.too_rare() if name != "anything" and summary.seeds[mode] < _FEW]
    if few:
        yield f"Each seed has a part of the faults only, so few seeds do not meet all: use --seeds {_FEW} or more."
    for failed in summary.failing[:_SHOWN_MAX]:
        kinds = ", ".join((*failed.wrong, *failed.error.splitlines()[:1]))
        yield f"FAILED: lockstep-sim replay {summary.name} --seed {failed.seed} --lock-mode {failed.mode}  # {kinds}"
    if len(summary.failing) > _SHOWN_MAX:
        yield f"... and {len(summary.failing) - _SHOWN_MAX} more failed"


def _row(name: str, *cells: str) -> str:
    return f"{name:34}" + "".join(f"{cell:>14}" for cell in cells)
