"""`lockstep-sim timeline`: a picture of one seed or plan, as a page or as text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lockstep.simulation.commands.choose import (
    OptionalName,
    PlanFile,
    Seed,
    check_writable,
    chosen_experiment,
    chosen_modes,
    chosen_plans,
)
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.side_by_side import page_of, runs_of_exhibit, runs_of_modes, runs_of_plan, text_of

__all__ = ["app"]

app = typer.Typer()


@app.command("timeline")
def _timeline(
    name: OptionalName = "",
    seed: Seed = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="write a page of HTML; by default text is printed"),
    ] = None,
    lock_mode: Annotated[
        str, typer.Option("--lock-mode", help="faithful, fenced or both; an exhibit has its own")
    ] = "both",
    plan: PlanFile = None,
    text: Annotated[bool, typer.Option("--text", help="with -o: write text and not a page")] = False,
) -> None:
    """Show one run: the owners of each queue, what each process did, faults and violations.

    With both lock modes two runs of the seed stand side by side over one time axis; of an exhibit of the museum, the
    reported bug and the mended product. The page is one file below 300 KB that loads nothing.
    """
    check_writable("--output", output)
    title, about, runs = _runs(name, seed, lock_mode, plan)
    is_text = text or output is None
    content = "\n".join(text_of(title, runs)) + "\n" if is_text else page_of(title, runs, about)
    if output is None:
        typer.echo(content, nl=False)
        return
    try:
        output.write_text(content, encoding="utf-8", errors="replace")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {output}: {error.strerror or error}") from None
    found = ", ".join(f"{run.label} {len(run.violations) + len(run.findings)}" for run in runs)
    typer.echo(f"{output}: {len(content.encode()):,} bytes; violations: {found}")


def _runs(name: str, seed: int | None, lock_mode: str, plan: Path | None) -> tuple[str, str, list[Evidence]]:
    """(title, a sentence about it, runs)."""
    if plan is not None:
        (shown,) = chosen_plans(name, seed, lock_mode, plan)
        title = f"{shown.name}, {plan.name} of seed {shown.plan.seed}"
        return title, shown.experiment.summary, _of_plan(shown.experiment, shown.plan)
    modes = chosen_modes(lock_mode)
    experiment: Any = chosen_experiment(name) if name else None
    found = getattr(experiment, "found", None)  # an exhibit of the museum has it: its seed and its smallest plan
    if experiment is not None and seed is None and found is not None:
        title = f"{experiment.name}, the smallest plan of seed {found.seed}"
        return title, experiment.summary, _of_plan(experiment, found.plan)
    if experiment is None or seed is None:
        raise typer.BadParameter("give NAME and --seed, or --plan FILE")
    title = f"{experiment.name}, seed {seed}"
    if hasattr(experiment, "mended"):
        mode = experiment.mode if len(modes) > 1 else modes[0]
        return title, experiment.summary, _of_plan(experiment, experiment.draw(seed, mode))
    return title, experiment.summary, runs_of_modes(experiment, seed, modes)


def _of_plan(experiment: Any, plan: Any) -> list[Evidence]:
    """A plan; of an exhibit also without its bug."""
    if hasattr(experiment, "mended"):
        return runs_of_exhibit(experiment, experiment.mended(), plan)
    return runs_of_plan(experiment, plan)
