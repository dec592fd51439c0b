"""`lockstep-sim`: ordered consumption on virtual time.

Exit status: 0; 1 when a seed failed, or what must happen sometimes did not; 2 for a wrong call; 130 after Ctrl-C.
"""

import signal
import sys

import typer

from lockstep.simulation.commands import articles, search, timeline

__all__ = ["app", "main"]

app = typer.Typer(
    name="lockstep-sim",
    help="Brokers and consumers on virtual time, with faults, and the search for broken order.",
    no_args_is_help=True,
    add_completion=False,
)
for commands in (search.app, timeline.app, articles.app):  # each part of the lab has a file of its commands
    app.add_typer(commands)


def main() -> None:
    """The entry point."""
    try:
        sys.exit(app(standalone_mode=True))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
