"""`lockstep-sim museum`: real bugs of ordered consumption, shown again."""

from typing import Annotated

import typer

from lockstep.remoting.texts import known_names
from lockstep.simulation.museum.pages import Visit, table, told
from lockstep.simulation.museum.registry import EXHIBITS

__all__ = ["app"]

_FAILED = 1

app = typer.Typer()


@app.command("museum")
def _museum(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="an exhibit; without it, the table of all")] = None,
    run_all: Annotated[bool, typer.Option("--all", help="run all exhibits")] = False,
) -> None:
    """Show real bugs of ordered consumption: what was reported, a variant that has the bug, and the mended run.

    With --all every exhibit is run. The exit status is 0 if each shows its violation and the product none.
    """
    if run_all:
        _all()
    elif name is None:
        typer.echo("\n".join(table()))
    else:
        key = name.removeprefix("museum/")
        if key not in EXHIBITS:
            known = known_names(key, EXHIBITS, "`lockstep-sim museum`")
            raise typer.BadParameter(f"no exhibit is named {key!r}; {known}")
        seen = Visit(EXHIBITS[key])
        typer.echo("\n".join(told(seen)))
        if not seen.replays:
            raise typer.Exit(_FAILED)


def _all() -> None:
    failed = 0
    width = max(map(len, EXHIBITS))
    for key, exhibit in EXHIBITS.items():
        replays = Visit(exhibit).replays
        failed += not replays
        shown = f"shows {exhibit.kind}, and the product none" if replays else "DOES NOT REPLAY"
        typer.echo(f"{key:{width}}  {shown}")
    typer.echo(f"{len(EXHIBITS) - failed} of {len(EXHIBITS)} replay")
    if failed:
        raise typer.Exit(_FAILED)
