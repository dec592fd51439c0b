"""`lockstep-sim sweep`, `replay`, `shrink` and `explain`: many seeds of an experiment, and one of them."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from lockstep.simulation.commands.choose import (
    Mode,
    Name,
    OptionalName,
    Output,
    OutputFormat,
    PlanFile,
    Seed,
    Shown,
    check_writable,
    chosen_experiment,
    chosen_modes,
    chosen_plans,
    tell,
)
from lockstep.simulation.lab.experiment import LockMode, Plan
from lockstep.simulation.lab.faults.words import event_words
from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.search.explain import explain
from lockstep.simulation.search.plan_file import write_plan
from lockstep.simulation.search.processes import ProcessKilledError
from lockstep.simulation.search.rows import explanation_row, run_row, shrunk_row, sweep_row
from lockstep.simulation.search.shrink import RUNS_MAX, Shrunk, shrink
from lockstep.simulation.search.summary import Summary, report
from lockstep.simulation.search.sweep import StateError, StateFile, sweep
from lockstep.simulation.search.texts import story_of, words_of
from lockstep.simulation.search.violation import kinds_of, violation_of

__all__ = ["Progress", "app"]

_FAILED: Final = 1
_INTERRUPTED: Final = 130
_PROGRESS_S: Final = 2.0
_KINDS_SHOWN: Final = 4

app = typer.Typer()
Kind = Annotated[str, typer.Option(help="the kind of violation; by default that of the first one")]


class Progress:
    """Lines on stderr, at most one each 2 s."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def say(self, text: Callable[[], str]) -> None:
        if time.monotonic() - self._last_s >= _PROGRESS_S:
            self._last_s = time.monotonic()
            typer.echo(text(), err=True)


@contextmanager
def _cut_off_as_interrupt() -> Iterator[None]:
    """SIGTERM, as of `timeout`, is Ctrl-C meanwhile: what was found so far is told."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_json(output: OutputFormat) -> bool:
    return output is OutputFormat.JSON


# Many seeds --------------------------------------------------------------------------------------------------


@app.command("sweep")
def _sweep(
    name: Name,
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, help="the first of them")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = os.cpu_count() or 1,
    lock_mode: Mode = "both",
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="outcomes: what is in it is not run again, the rest is added"),
    ] = None,
    failing: Annotated[
        Path | None, typer.Option(metavar="FILE", help="failing seeds; by default NAME.failing, or STATE.failing")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Run an experiment with each seed, and say what went wrong and what happened.

    Exit status 1: a seed failed, or what the sweep is about happened in fewer than 5 % of the seeds. With fenced locks
    any violation is a failure; without, violations are RocketMQ's own, and only a run that did not reach its end is
    one. After Ctrl-C the report has the seeds that were run, and with --state the same command goes on.
    """
    experiment = chosen_experiment(name)
    check_writable("--failing", failing)
    modes, progress, summary = chosen_modes(lock_mode, experiment), Progress(), Summary(name)
    count, began = seeds * len(modes), time.monotonic()
    try:
        kept = StateFile(state, name)
    except StateError as error:
        raise typer.BadParameter(f"--state {error}") from None

    def on_progress(new: int, seconds: float) -> None:
        progress.say(lambda: _progress_text(summary, count, new / max(seconds, 1e-9)))

    interrupted = killed = False
    try:
        sweep(summary, range(first_seed, first_seed + seeds), modes, jobs=jobs, state=kept, on_progress=on_progress)
    except KeyboardInterrupt:
        interrupted = True
    except ProcessKilledError:
        killed = True
    ran = f"{summary.seeds.total():,} of {count:,} seeds in {time.monotonic() - began:.0f} s"
    tell(output, lambda: [*report(summary, modes), ran], lambda: sweep_row(summary, modes, wanted=count))
    said = _keep_failing(summary, failing or _beside(name, state), asked=failing is not None)
    if said:
        typer.echo(said, err=output is OutputFormat.JSON)
    if interrupted:
        again = (
            " The same command goes on from here." if state is not None else " --state FILE makes it possible to go on."
        )
        typer.echo(f"Interrupted.{again}", err=True)
        raise typer.Exit(_INTERRUPTED)
    if killed:
        raise typer.BadParameter(f"a process of the sweep was killed, perhaps for memory: try fewer than --jobs {jobs}")
    if not summary.good:
        raise typer.Exit(_FAILED)


def _progress_text(summary: Summary, count: int, rate: float) -> str:
    kinds = sum(summary.wrong.values(), start=type(summary.seeds)()).most_common(_KINDS_SHOWN)
    found = "".join(f", {kind} {number:,}" for kind, number in kinds)
    return f"{summary.seeds.total():,} of {count:,} seeds, {rate:.1f} seeds/s, {len(summary.failing)} failed{found}"


def _beside(name: str, state: Path | None) -> Path:
    return Path(f"{_short(name)}.failing") if state is None else state.with_name(state.name + ".failing")


def _short(name: str) -> str:
    return name.rpartition(":")[2].replace("/", "-")


def _keep_failing(summary: Summary, path: Path, *, asked: bool) -> str:
    """Write the failing seeds; an older list of others would mislead. Returns what to say of it.

    Args:
        asked: the file was named: it is there also without a seed.
    """
    lines = [
        f"{one.seed} {one.mode} {', '.join((*one.wrong, *one.error.splitlines()[:1]))}\n" for one in summary.failing
    ]
    try:
        if lines or asked:
            path.write_text("".join(lines), encoding="utf-8")
        elif path.exists():
            path.unlink()
            return f"no seed failed: the older {path} is removed"
    except OSError as error:
        raise typer.BadParameter(f"the failing seeds cannot be written to {path}: {error.strerror}") from None
    return f"failing seeds: {path}" if lines else ""


# One seed ----------------------------------------------------------------------------------------------------


@app.command("replay")
def _replay(
    name: OptionalName = "",
    seed: Seed = None,
    lock_mode: Mode = "fenced",
    plan: PlanFile = None,
    everything: Annotated[bool, typer.Option("--all", help="also log events of level debug")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Run one seed again, and tell its story: settings, faults, log events, violations. Exit status 1: it has some."""
    failed = False
    for shown in chosen_plans(name, seed, lock_mode, plan):
        run = run_plan(shown.experiment, shown.plan)
        tell(output, partial(story_of, run, everything=everything), partial(run_row, shown.name, run))
        failed = failed or violation_of(run) is not None
    if failed:
        raise typer.Exit(_FAILED)


@app.command("shrink")
def _shrink(
    name: OptionalName = "",
    seed: Seed = None,
    lock_mode: Mode = "both",
    kind: Kind = "",
    runs: Annotated[int, typer.Option(min=1, help="try at most so many plans")] = RUNS_MAX,
    plan: PlanFile = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="the plan; by default NAME-SEED.plan")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Find the simplest plan with the same kind of violation: fewest faults and members, shortest time.

    After Ctrl-C or SIGTERM the simplest plan so far is written. With both lock modes the fenced one is tried first.
    """
    plans = chosen_plans(name, seed, lock_mode, plan)
    path = to or Path(f"{_short(plans[0].name)}-{plans[0].plan.seed}.plan")
    check_writable("--to", path)
    shown, found = _with_violation(plans, kind)
    best, progress = [Shrunk(shown.plan, 0, complete=False)], Progress()

    def on_progress(plan: Plan, count: int) -> None:
        best[0] = Shrunk(plan, count, complete=False)
        progress.say(lambda: f"{count} plans tried: {_size(plan)}")

    interrupted = False
    try:
        with _cut_off_as_interrupt():
            best[0] = shrink(shown.experiment, shown.plan, found.kind, runs_max=runs, on_progress=on_progress)
    except KeyboardInterrupt:
        interrupted = True
    shrunk = best[0]
    try:
        write_plan(path, shown.name, shrunk.plan, found.kind)
    except OSError as error:
        raise typer.BadParameter(f"the plan cannot be written to {path}: {error.strerror}") from None
    tell(
        output,
        lambda: _plan_lines(shown, shrunk, found.kind, path),
        lambda: shrunk_row(shown.name, shown.plan, found, shrunk, str(path)),
    )
    if interrupted:
        typer.echo("Interrupted: this is the simplest plan so far.", err=True)
        raise typer.Exit(_INTERRUPTED)


def _plan_lines(shown: Shown, shrunk: Shrunk, kind: str, path: Path) -> Iterator[str]:
    plan = shrunk.plan
    yield f"{kind} in {plan.lock_mode} mode, with {_size(plan)}:"
    for event in plan.events:
        yield f"  {event.at_ms / 1000:10.3f} s  {event_words(event)}"
    for name, value in plan.described().items():
        yield f"  {name}: {value}"
    yield f"{path}: lockstep-sim replay --plan {path}, lockstep-sim explain --plan {path}"
    left = "" if shrunk.complete else "; there are simpler ones to try: --runs allows more"
    yield f"{shrunk.runs} plans were tried, from {_size(shown.plan)} to {_size(plan)}{left}"


def _size(plan: Plan) -> str:
    count = len(plan.events)
    return f"{count} {'fault' if count == 1 else 'faults'} in {plan.life_ms / 1000:.1f} s"


@app.command("explain")
def _explain(
    name: OptionalName = "",
    seed: Seed = None,
    lock_mode: Mode = "both",
    kind: Kind = "",
    plan: PlanFile = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Say why a violation happens: the faults that it needs, the last of them, and when it became inevitable.

    The seed is run again and again, each time with something changed. With both lock modes the fenced one is tried
    first. After Ctrl-C or SIGTERM it says which faults are enough.
    """
    shown, found = _with_violation(chosen_plans(name, seed, lock_mode, plan), kind)
    progress, enough, runs = Progress(), [shown.plan.events], 0

    def on_progress(what: str, count: int) -> None:
        nonlocal runs
        runs = count
        progress.say(lambda: f"{count} runs, now {what}")

    where = f" in {found.queue}" if found.queue else ""
    run = f"{shown.name}, seed {shown.plan.seed}, {shown.plan.lock_mode} locks"
    head = f"{run}: {found.kind} at {found.at_ms / 1000:.3f} s{where}"
    try:
        with _cut_off_as_interrupt():
            explanation = explain(
                shown.experiment, shown.plan, found.kind, on_progress=on_progress, on_enough=enough.append
            )
    except KeyboardInterrupt:
        typer.echo(f"{head}\n\nCut off after {runs} runs. These faults are enough; fewer may be:", err=_is_json(output))
        for event in enough[-1]:
            typer.echo(f"  {event.at_ms / 1000:10.3f} s  {event_words(event)}", err=_is_json(output))
        raise typer.Exit(_INTERRUPTED) from None
    tell(
        output,
        lambda: [head, "", *words_of(explanation), "", f"{explanation.runs} runs"],
        lambda: explanation_row(shown.name, shown.plan, found, explanation),
    )


def _with_violation(plans: list[Shown], kind: str) -> tuple[Shown, Finding]:
    """The first plan with a violation, fenced before faithful. Raises typer.BadParameter."""
    seen: list[str] = []
    for shown in sorted(plans, key=lambda one: one.plan.lock_mode is not LockMode.FENCED):
        run = run_plan(shown.experiment, shown.plan)
        found = violation_of(run, kind or shown.kind)
        if found is not None:
            return shown, found
        seen += kinds_of(run)
    plan = plans[0].plan
    modes = " or ".join(shown.plan.lock_mode for shown in plans)
    if seen:
        raise typer.BadParameter(f"seed {plan.seed} has no violation {kind!r}; it has {', '.join(dict.fromkeys(seen))}")
    raise typer.BadParameter(f"seed {plan.seed} has no violation in {modes} mode")
