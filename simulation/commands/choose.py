"""Arguments and options that several commands of `lockstep-sim` share: an experiment, lock modes, a plan."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from lockstep.remoting.host.writable import why_unwritable
from lockstep.remoting.texts import json_line
from lockstep.simulation.lab.experiment import LOCKING, Experiment, LockMode, why_no_mode
from lockstep.simulation.lab.registry import UnknownExperimentError, find_experiment
from lockstep.simulation.search.plan_file import PlanFileError, read_plan

__all__ = [
    "Mode",
    "Name",
    "OptionalName",
    "Output",
    "OutputFormat",
    "PlanFile",
    "Seed",
    "Shown",
    "check_writable",
    "chosen_experiment",
    "chosen_modes",
    "chosen_plans",
    "tell",
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="an experiment: a story's name, worlds, or FILE.py:NAME")]
OptionalName = Annotated[
    str, typer.Argument(metavar="[NAME]", help="as for sweep; --plan needs none", show_default=False)
]
Seed = Annotated[int | None, typer.Option(help="of the run")]
Mode = Annotated[str, typer.Option("--lock-mode", help="faithful, fenced or both; of a story also fifo")]
PlanFile = Annotated[Path | None, typer.Option("--plan", metavar="FILE", help="a plan that shrink wrote, not a seed")]


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="text for people, or JSON objects, one a line")]


def tell(output: OutputFormat, lines: Callable[[], Iterable[str]], row: Callable[[], dict[str, Any]]) -> None:
    """Print an outcome on stdout, as `lines` or as a JSON object."""
    typer.echo("\n".join(lines()) if output is OutputFormat.TEXT else json_line(row()))


def check_writable(option: str, path: Path | None) -> None:
    """Find out before the runs whether their file can be written. Raises typer.BadParameter.

    Args:
        option: What names the file, as `--trace`.
        path: The file; None: the option was not given.
    """
    if path is not None and (why := why_unwritable(path)):
        raise typer.BadParameter(f"{option}: cannot write {path}: {why}")


class Shown(NamedTuple):
    """A plan to run; `kind` is the kind of violation that it was shrunk for, or empty."""

    name: str  # of the experiment
    experiment: Experiment[Any]
    plan: Any
    kind: str = ""


def chosen_experiment(name: str) -> Experiment[Any]:
    """The experiment of a name. Raises typer.BadParameter."""
    try:
        return find_experiment(name)
    except UnknownExperimentError as error:
        raise typer.BadParameter(str(error)) from None


def chosen_modes(text: str, experiment: Experiment[Any] | None = None) -> list[LockMode]:
    """The lock modes of --lock-mode. Raises typer.BadParameter."""
    modes, which = (list(map(str, LOCKING)), "both: ") if text == "both" else ([text], "")
    for mode in modes:
        if why := why_no_mode(experiment, mode, "both"):
            raise typer.BadParameter(f"--lock-mode {which}{why}")
    return list(map(LockMode, modes))


def chosen_plans(name: str, seed: int | None, lock_mode: str, plan: Path | None) -> list[Shown]:
    """The plan of a file, or of a seed for each lock mode. Raises typer.BadParameter."""
    if plan is not None:
        if name or seed is not None:
            raise typer.BadParameter("--plan goes without NAME and --seed: the file has them")
        try:
            return [Shown(*read_plan(plan))]
        except PlanFileError as error:
            raise typer.BadParameter(str(error)) from None
    if not name or seed is None:
        raise typer.BadParameter("give NAME and --seed, or --plan FILE")
    experiment = chosen_experiment(name)
    return [Shown(name, experiment, experiment.draw(seed, mode)) for mode in chosen_modes(lock_mode, experiment)]
