"""`lockstep-sim sweep` and `replay`: many seeds of an experiment, and one of them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lockstep.simulation.lab.experiment import Experiment, LockMode
from lockstep.simulation.lab.registry import UnknownExperimentError, find_experiment
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.search.story import story_of
from lockstep.simulation.search.summary import Summary
from lockstep.simulation.search.sweep import StateFile, sweep

__all__ = ["app"]

_FAILED = 1
_SHOWN_MAX = 20
_PROGRESS_S = 2.0

app = typer.Typer()
Name = Annotated[str, typer.Argument(metavar="NAME", help="an experiment")]
Mode = Annotated[str, typer.Option("--lock-mode", help="faithful, fenced or both")]


def _experiment(name: str) -> Experiment[Any]:
    try:
        return find_experiment(name)
    except UnknownExperimentError as error:
        raise typer.BadParameter(str(error)) from None


def _modes(text: str) -> list[LockMode]:
    if text == "both":
        return list(LockMode)
    if text not in set(LockMode):
        raise typer.BadParameter(f"{text!r} is not allowed; use faithful, fenced or both")
    return [LockMode(text)]


@app.command("sweep")
def _sweep(
    name: Name = "worlds",
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds")] = 100,
    first_seed: Annotated[int, typer.Option(help="the first of them")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = os.cpu_count() or 1,
    lock_mode: Mode = "both",
    state: Annotated[
        Path | None, typer.Option(help="a file of outcomes: what is in it is not run again, the rest is added")
    ] = None,
) -> None:
    """Run an experiment with each seed, and say what went wrong and what happened.

    Fails for a violation in fenced mode, for a world that does not reach its end, and when a fault or a recovery that
    the sweep is about happened in fewer than 5 % of the seeds. Failing seeds are also written to STATE.failing.
    """
    experiment, modes, last = _experiment(name), _modes(lock_mode), [0.0]

    def progress(summary: Summary, new: int, seconds: float) -> None:
        if time.monotonic() - last[0] >= _PROGRESS_S:
            last[0] = time.monotonic()
            done, of = sum(summary.seeds.values()), seeds * len(modes)
            rate = f"{new / seconds:.1f} worlds/s" if seconds > 0 else ""
            typer.echo(f"{done:,} of {of:,} worlds, {rate}, {len(summary.failing)} failed", err=True)

    began = time.monotonic()
    summary = sweep(
        name, range(first_seed, first_seed + seeds), modes, jobs=jobs, state=StateFile(state), on_progress=progress
    )
    typer.echo("\n".join(_report(experiment, summary, modes)))
    typer.echo(f"{sum(summary.seeds.values()):,} worlds in {time.monotonic() - began:.0f} s")
    if state is not None and summary.failing:
        failing = state.with_name(state.name + ".failing")
        failing.write_text("".join(f"{one.seed} {one.mode}\n" for one in summary.failing), encoding="utf-8")
        typer.echo(f"failing seeds: {failing}")
    if summary.failing or summary.too_rare():
        raise typer.Exit(_FAILED)


def _report(experiment: Experiment[Any], summary: Summary, modes: Sequence[LockMode]) -> list[str]:
    counts = {mode: summary.seeds[mode] for mode in modes}
    lines = [_row("seeds", *(f"{counts[mode]:,}" for mode in modes), head=modes)]
    kinds = sorted({kind for mode in modes for kind in summary.wrong[mode]})
    lines += [_row(kind, *(f"{summary.wrong[mode][kind]:,}" for mode in modes)) for kind in kinds]
    lines += [_row("no violation at all", *("-" if summary.wrong[mode] else "yes" for mode in modes)), ""]
    names = sorted({name for mode in modes for name in (*summary.sometimes[mode], *experiment.sometimes[mode])})
    lines.append(_row("happened in", *("% of seeds" for _ in modes), head=modes))
    lines += [
        _row(name, *(f"{100 * summary.sometimes[mode][name] / max(counts[mode], 1):.1f}" for mode in modes))
        for name in names
    ]
    lines.append("")
    for mode, name, share in summary.too_rare():
        lines.append(f"TOO RARE in {mode} mode: {name}, in {100 * share:.1f} % of the seeds")
    for failed in summary.failing[:_SHOWN_MAX]:
        kinds_text = ", ".join((*failed.wrong, *([failed.error.splitlines()[0]] if failed.error else [])))
        replay = f"lockstep-sim replay {experiment.name} --seed {failed.seed} --lock-mode {failed.mode}"
        lines.append(f"FAILED: {replay}  # {kinds_text}")
    if len(summary.failing) > _SHOWN_MAX:
        lines.append(f"... and {len(summary.failing) - _SHOWN_MAX} more failed")
    return lines


def _row(name: str, *values: str, head: Sequence[LockMode] = ()) -> str:
    heads = "".join(f"{mode:>14}" for mode in head)
    cells = "".join(f"{value:>14}" for value in values)
    return f"{'':34}{heads}\n{name:34}{cells}" if head else f"{name:34}{cells}"


@app.command("replay")
def _replay(
    seed: Annotated[int, typer.Option(help="of the run")],
    name: Name = "worlds",
    lock_mode: Mode = "fenced",
    everything: Annotated[bool, typer.Option("--all", help="also log events of level debug")] = False,
) -> None:
    """Run one seed of an experiment again, and tell its story: settings, faults, log events, violations."""
    experiment, failed = _experiment(name), False
    for mode in _modes(lock_mode):
        run = run_plan(experiment, experiment.draw(seed, mode))
        typer.echo("\n".join(story_of(run, everything=everything)))
        failed = failed or run.error is not None or (run.played is not None and bool(run.played.findings.wrong))
    if failed:
        raise typer.Exit(_FAILED)
