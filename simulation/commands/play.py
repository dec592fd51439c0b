"""`lockstep-sim play`: a run on a page that one can touch."""

import asyncio
import os
import secrets
import sys
from typing import Annotated, Any, Final

import typer

from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import printable
from lockstep.remoting.settings import Address
from lockstep.simulation.commands.story_options import (
    BrokerSettings,
    ConsumerSettings,
    changes_of,
    with_setup_and_faults,
)
from lockstep.simulation.lab.experiment import LOCKING
from lockstep.simulation.lab.registry import UnknownExperimentError
from lockstep.simulation.play.choice import Choice, drawn

__all__ = ["app"]

_WRONG_CALL: Final = 2
_TOKEN_BYTES: Final = 16
_EXTRA: Final = ("starlette", "uvicorn", "jinja2", "markupsafe")
app = typer.Typer()


@app.command("play")
@with_setup_and_faults
def _play(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[STORY]",
            help="a story of `list`, an exhibit, a section as 1/2.2.2, a plan file, or FILE.py:NAME with your listener",
            show_default=False,
        ),
    ] = "",
    *,
    seed: Annotated[int, typer.Option(help="of faults, latencies and schedule")] = 1,
    lock_mode: Annotated[str | None, typer.Option(help="faithful, fenced or fifo; both: side by side")] = None,
    consumer: ConsumerSettings = None,
    broker: BrokerSettings = None,
    host: Annotated[str, typer.Option(help="where the page listens")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one")] = 0,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="open the page in the browser")] = True,
    **more: Any,
) -> None:
    """Show a run on a page, where you play, pause, go back, and touch hosts and links.

    Without a story: three consumers share eight queues, and nothing fails until you touch it. What you did is a plan,
    which `run` and `replay` repeat. Ctrl-C ends it.
    """
    setup, faults = changes_of(more)
    choice = Choice(what, seed, setup, faults, consumer or (), broker or ())
    modes = list(map(str, LOCKING)) if lock_mode == "both" else [lock_mode or ""]
    try:
        from lockstep.console.server import address_of, listen, serve_app
        from lockstep.simulation.play.page.app import make_app
        from lockstep.simulation.play.session import Session
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        _refuse("the page needs more packages: pip install 'lockstep-mq[console]'")
    try:
        for mode in modes:
            drawn(choice, mode)
        listening = listen(host, port)
    except (UnknownExperimentError, ValueError) as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"cannot listen on {Address(host, port)}: {error.strerror or error}; --port chooses another")

    async def serve() -> None:
        session = Session(choice, modes, secrets.token_hex(_TOKEN_BYTES))
        try:
            await session.start()
            address = address_of(host, listening)
            typer.echo(f"the run is at {printable(address)} (Ctrl-C ends it)", err=True)
            if opens and _has_display():
                typer.launch(address)  # does not wait for the browser
            await serve_app(make_app(session, host), listening, AsyncioRuntime(), session.end_streams)
        finally:
            await session.end()

    asyncio.run(serve())


def _refuse(text: str) -> None:
    typer.echo(f"lockstep-sim: {text}", err=True)
    raise typer.Exit(_WRONG_CALL)


def _has_display() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
