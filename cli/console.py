"""`lockstep console`: starts the pages."""

from lockstep.cli.output import CliError, StderrLog, note
from lockstep.remoting.logs import printable

__all__ = ["console"]


async def console(name_server: str, host: str, port: int) -> None:
    """Serve the pages until Ctrl-C.

    Raises:
        CliError: The extra is not installed, or the address is in use.
    """
    try:
        from lockstep.console.server import serve
    except ModuleNotFoundError as error:
        if error.name in ("starlette", "uvicorn", "jinja2"):
            raise CliError("the console needs more packages: pip install 'lockstep-mq[console]'") from None
        raise
    try:
        await serve(name_server, host, port, StderrLog(verbose=False), _ready)
    except OSError as error:
        raise CliError(f"cannot listen on {host}:{port}: {error.strerror or error}; --port chooses another") from None


def _ready(address: str) -> None:
    note(f"the console is at {printable(address)} (Ctrl-C ends it)")
