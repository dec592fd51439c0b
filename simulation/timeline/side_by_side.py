"""Runs that belong side by side: one seed in both lock modes, or an exhibit as it was reported and mended."""

from collections.abc import Sequence
from typing import Any, Final

from lockstep.simulation.lab.experiment import Experiment, LockMode, Plan
from lockstep.simulation.timeline.build import timeline_of
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.page import BYTES_MAX, timeline_page
from lockstep.simulation.timeline.text import timeline_text
from lockstep.simulation.timeline.thin import MOMENTS_MAX
from lockstep.simulation.timeline.watch import watched_run

__all__ = ["page_of", "runs_of_exhibit", "runs_of_modes", "runs_of_plan", "text_of"]

_SMALLER: Final = 0.85


def runs_of_modes(experiment: Experiment[Any], seed: int, modes: Sequence[LockMode]) -> list[Evidence]:
    """A seed in each of some lock modes."""
    return [watched_run(experiment, experiment.draw(seed, mode), str(mode)) for mode in modes]


def runs_of_exhibit(buggy: Experiment[Any], mended: Experiment[Any], plan: Plan) -> list[Evidence]:
    """A plan with the bug of an exhibit, and without it."""
    return [watched_run(buggy, plan, "as reported"), watched_run(mended, plan, "mended")]


def runs_of_plan(experiment: Experiment[Any], plan: Plan) -> list[Evidence]:
    """A plan, such as one that was shrunk."""
    return [watched_run(experiment, plan, str(plan.lock_mode))]


def page_of(title: str, runs: Sequence[Evidence], about: str = "") -> str:
    """The page, of at most BYTES_MAX bytes: the larger the runs, the fewer of their moments are drawn one by one."""
    moments_max = MOMENTS_MAX // max(len(runs), 1)
    while True:
        page = timeline_page(title, [timeline_of(run, moments_max) for run in runs], about)
        if len(page.encode()) < BYTES_MAX or moments_max == 0:
            return page
        moments_max = int(moments_max * _SMALLER)


def text_of(title: str, runs: Sequence[Evidence]) -> list[str]:
    """Lines of text, with all moments."""
    return timeline_text(title, [timeline_of(run, 1 << 30) for run in runs])
