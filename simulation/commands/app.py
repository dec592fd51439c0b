"""`lockstep-sim`: ordered consumption on virtual time.

Exit status: 0; 1 when a seed failed, or what must happen sometimes did not; 2 for a wrong call; 130 after Ctrl-C;
141 when the reader of stdout has closed it.
"""

import signal
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from lockstep.remoting.host.exits import status_of
from lockstep.remoting.host.report_stream import open_reports
from lockstep.simulation.commands import articles, compare, museum, play, run, search, timeline

__all__ = ["app", "main"]

app = typer.Typer(
    name="lockstep-sim",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# Each part of the lab has a file of its commands.
for commands in (run.app, play.app, compare.app, search.app, timeline.app, museum.app, articles.app):
    app.add_typer(commands)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstep-sim {version('lockstep-mq')}")
        raise typer.Exit


@app.callback()
def _first(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Brokers and consumers on virtual time, with faults, and the search for broken order.

    Without a command: a takeover, and what it shows.
    """
    if context.invoked_subcommand is None:
        run.first_run()


def main() -> None:
    """The entry point. A wrong call is one line on stderr."""
    open_reports()
    try:
        status = app(standalone_mode=False) or 0
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except SystemExit as ended:
        sys.exit(status_of(ended))
    except typer.TyperException as error:
        text = error.format_message()
        is_help = text.startswith("Usage:")
        sys.stderr.write(
            f"{text}\n" if is_help else f"lockstep-sim: {text.rstrip('.')} (--help lists what is allowed)\n"
        )
        sys.exit(error.exit_code)
    sys.exit(status)
