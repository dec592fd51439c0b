"""`lockstep-sim timeline`: a picture of one seed, as a page or as text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lockstep.simulation.lab.experiment import Experiment, LockMode
from lockstep.simulation.lab.registry import UnknownExperimentError, find_experiment
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.side_by_side import page_of, runs_of_exhibit, runs_of_modes, text_of

__all__ = ["app"]

app = typer.Typer()


@app.command("timeline")
def _timeline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="an experiment, such as takeover or worlds")],
    seed: Annotated[
        int | None, typer.Option(help="of the run; by default 1, of an exhibit the plan that it shows")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="write a page of HTML; without it, text to the terminal"),
    ] = None,
    lock_mode: Annotated[
        str | None, typer.Option("--lock-mode", help="faithful, fenced or both; of an exhibit by default its own")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="with -o: write text and not a page")] = False,
) -> None:
    """Show what happened in the run of one seed: who owned each queue, what each process did, faults and violations.

    With both lock modes, and of an exhibit of the museum, two runs stand side by side over one time axis. The page is
    one file below 300 KB that loads nothing.
    """
    try:
        experiment = find_experiment(name)
    except UnknownExperimentError as error:
        raise typer.BadParameter(str(error)) from None
    runs, title = _runs(experiment, seed, lock_mode)
    is_text = text or output is None
    content = "\n".join(text_of(title, runs)) + "\n" if is_text else page_of(title, runs, experiment.summary)
    if output is None:
        typer.echo(content, nl=False)
        return
    try:
        output.write_text(content, encoding="utf-8", errors="replace")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {output}: {error.strerror or error}") from None
    found = ", ".join(f"{run.label} {len(run.violations) + len(run.findings)}" for run in runs)
    typer.echo(f"{output}: {len(content.encode()):,} bytes; violations: {found}")


def _runs(experiment: Experiment[Any], seed: int | None, lock_mode: str | None) -> tuple[list[Evidence], str]:
    mended = getattr(experiment, "mended", None)  # an exhibit of the museum has it
    if mended is None:
        number = 1 if seed is None else seed
        return runs_of_modes(experiment, number, _modes(lock_mode or "both")), f"{experiment.name}, seed {number}"
    exhibit: Any = experiment
    mode = exhibit.mode if lock_mode is None else _one_mode(lock_mode)
    if seed is not None or exhibit.found is None or lock_mode is not None:
        plan, shown = exhibit.draw(1 if seed is None else seed, mode), f"seed {1 if seed is None else seed}"
    else:
        plan, shown = exhibit.found.plan, f"the smallest plan of seed {exhibit.found.seed}"
    return runs_of_exhibit(exhibit, mended(), plan), f"{experiment.name}, {shown}"


def _modes(text: str) -> list[LockMode]:
    return list(LockMode) if text == "both" else [_one_mode(text)]


def _one_mode(text: str) -> LockMode:
    if text not in set(LockMode):
        raise typer.BadParameter(f"{text!r} is not allowed; use faithful, fenced or both")
    return LockMode(text)
