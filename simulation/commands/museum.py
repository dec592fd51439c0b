"""`lockstep-sim museum`: real bugs of ordered consumption, shown again."""

from functools import partial
from typing import Annotated

import typer

from lockstep.remoting.texts import known_names
from lockstep.simulation.commands.choose import Output, OutputFormat, tell
from lockstep.simulation.museum.pages import Visit, exhibit_row, table, told, visit_row
from lockstep.simulation.museum.registry import EXHIBITS

__all__ = ["app"]

_FAILED = 1

app = typer.Typer()


@app.command("museum")
def _museum(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="an exhibit; without it, the table of all")] = None,
    run_all: Annotated[bool, typer.Option("--all", help="run all exhibits")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show real bugs of ordered consumption: what was reported, a variant that has the bug, and the mended run.

    With --all every exhibit is run. The exit status is 0 if each shows its violation and the product none.
    """
    if run_all:
        _all(output)
    elif name is None:
        tell(output, table, lambda: {"exhibits": [exhibit_row(one) for one in EXHIBITS.values()]})
    else:
        key = name.removeprefix("museum/")
        if key not in EXHIBITS:
            known = known_names(key, EXHIBITS, "`lockstep-sim museum`")
            raise typer.BadParameter(f"no exhibit is named {key!r}; {known}")
        seen = Visit(EXHIBITS[key])
        tell(output, lambda: told(seen), lambda: visit_row(seen))
        if not seen.replays:
            raise typer.Exit(_FAILED)


def _all(output: OutputFormat) -> None:
    failed = 0
    width = max(map(len, EXHIBITS))
    for key, exhibit in EXHIBITS.items():
        seen = Visit(exhibit)
        failed += not seen.replays
        shown = f"shows {exhibit.kind}, and the product none" if seen.replays else "DOES NOT REPLAY"
        tell(output, partial(list, [f"{key:{width}}  {shown}"]), partial(visit_row, seen))
    typer.echo(f"{len(EXHIBITS) - failed} of {len(EXHIBITS)} replay", err=output is OutputFormat.JSON)
    if failed:
        raise typer.Exit(_FAILED)
