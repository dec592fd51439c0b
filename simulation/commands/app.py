"""`lockstep-sim`: ordered consumption on virtual time.

Exit status: 0; 1 when a seed failed, or what must happen sometimes did not; 2 for a wrong call; 130 after Ctrl-C.
"""

import signal
import sys

import typer

from lockstep.simulation.commands import articles, run, search, timeline

__all__ = ["app", "main"]

app = typer.Typer(
    name="lockstep-sim",
    invoke_without_command=True,
    add_completion=False,
)
for commands in (run.app, search.app, timeline.app, articles.app):  # each part of the lab has a file of its commands
    app.add_typer(commands)


@app.callback()
def _first(context: typer.Context) -> None:
    """Brokers and consumers on virtual time, with faults, and the search for broken order.

    Without a command: a takeover, and what it shows.
    """
    if context.invoked_subcommand is None:
        run.first_run()


def main() -> None:
    """The entry point."""
    try:
        sys.exit(app(standalone_mode=True))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
