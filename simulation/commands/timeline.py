"""`lockstep-sim timeline`: a picture of one seed or plan, as a page or as text."""

from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from lockstep.simulation.commands.choose import (
    OptionalName,
    OutputFormat,
    PlanFile,
    Seed,
    check_writable,
    chosen_experiment,
    chosen_modes,
    chosen_plans,
    tell,
)
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.output import (
    page_of,
    runs_of_exhibit,
    runs_of_modes,
    runs_of_plan,
    text_of,
    timeline_row,
)

__all__ = ["app"]

_FORMATS: Final = frozenset(OutputFormat)

app = typer.Typer()


@app.command("timeline")
def _timeline(
    name: OptionalName = "",
    seed: Seed = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE|text|json", help="a page of HTML into FILE, or what is printed"),
    ] = OutputFormat.TEXT,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the same page, so that -o json can be given too")
    ] = None,
    lock_mode: Annotated[
        str, typer.Option("--lock-mode", help="faithful, fenced or both; an exhibit has its own")
    ] = "both",
    plan: PlanFile = None,
    text: Annotated[bool, typer.Option("--text", help="in FILE text and not a page")] = False,
) -> None:
    """Show one run: the owners of each queue, what each process did, faults and violations.

    With both lock modes two runs of the seed stand side by side over one time axis; of an exhibit of the museum, the
    reported bug and the mended product. The page is one file below 300 KB that loads nothing.
    """
    path, form = to, OutputFormat.TEXT
    if output in _FORMATS:
        form = OutputFormat(output)
    elif to is not None:
        raise typer.BadParameter(f"-o and --to both name a file, {output} and {to}; -o json prints an object")
    else:
        path = Path(output)
    check_writable("--output" if to is None else "--to", path)
    chosen = _runs(name, seed, lock_mode, plan)
    title, runs, size = chosen.title, chosen.runs, None
    if path is not None:
        content = "\n".join(text_of(title, runs)) + "\n" if text else page_of(title, runs, chosen.about)
        size = _write(path, content)
    row = {"experiment": chosen.name, "seed": chosen.seed, "file": path and str(path), "bytes": size}
    tell(form, lambda: _told(title, runs, path, size), lambda: row | {"runs": [timeline_row(run) for run in runs]})


def _write(path: Path, content: str) -> int:
    """Returns its size in bytes. Raises typer.BadParameter."""
    encoded = content.encode("utf-8", "replace")
    try:
        path.write_bytes(encoded)
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror or error}") from None
    return len(encoded)


def _told(title: str, runs: list[Evidence], path: Path | None, size: int | None) -> list[str]:
    if path is None:
        return text_of(title, runs)
    found = ", ".join(f"{run.label} {len(run.violations) + len(run.findings)}" for run in runs)
    return [f"{path}: {size:,} bytes; violations: {found}"]


class _Chosen(NamedTuple):
    """Runs of an experiment; `about` is a sentence about it."""

    name: str
    seed: int
    title: str
    about: str
    runs: list[Evidence]


def _runs(name: str, seed: int | None, lock_mode: str, plan: Path | None) -> _Chosen:
    """Raises typer.BadParameter."""
    if plan is not None:
        (shown,) = chosen_plans(name, seed, lock_mode, plan)
        title = f"{shown.name}, {plan.name} of seed {shown.plan.seed}"
        runs = _of_plan(shown.experiment, shown.plan)
        return _Chosen(shown.name, shown.plan.seed, title, shown.experiment.summary, runs)
    experiment: Any = chosen_experiment(name) if name else None
    modes = chosen_modes(lock_mode, experiment)
    found = getattr(experiment, "found", None)  # an exhibit of the museum has it: its seed and its smallest plan
    if experiment is not None and seed is None and found is not None:
        title = f"{experiment.name}, the smallest plan of seed {found.seed}"
        return _Chosen(experiment.name, found.seed, title, experiment.summary, _of_plan(experiment, found.plan))
    if experiment is None or seed is None:
        raise typer.BadParameter("give NAME and --seed, or --plan FILE")
    title = f"{experiment.name}, seed {seed}"
    if hasattr(experiment, "mended"):
        mode = experiment.mode if len(modes) > 1 else modes[0]
        runs = _of_plan(experiment, experiment.draw(seed, mode))
    else:
        runs = runs_of_modes(experiment, seed, modes)
    return _Chosen(experiment.name, seed, title, experiment.summary, runs)


def _of_plan(experiment: Any, plan: Any) -> list[Evidence]:
    """A plan; of an exhibit also without its bug."""
    if hasattr(experiment, "mended"):
        return runs_of_exhibit(experiment, experiment.mended(), plan)
    return runs_of_plan(experiment, plan)
