"""`lockstep console`: starts the pages."""

from functools import partial
from pathlib import Path

from lockstep.cli.output import CliError, StderrLog, check_writable, note
from lockstep.remoting.logs import printable
from lockstep.remoting.settings import Address, is_loopback

__all__ = ["console"]


async def console(name_server: str, host: str, port: int, snapshot: Path | None) -> None:
    """Serve the pages until Ctrl-C.

    Args:
        snapshot: Write one file with the page Order there instead.

    Raises:
        CliError: The extra is not installed, the address is in use, or the file cannot be written.
    """
    check_writable("--snapshot", snapshot)
    try:
        from lockstep.console.server import serve
        from lockstep.console.snapshot import snapshot_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "jinja2", "markupsafe"):
            raise CliError("the console needs more packages: pip install 'lockstep-mq[console]'") from None
        raise
    log = StderrLog(verbose=False)
    if snapshot is not None:
        page = await snapshot_of(name_server, "en", log)
        try:
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            with snapshot.open("w", encoding="utf-8", errors="replace") as file:  # it may be a pipe or a device
                file.write(page)
        except OSError as error:
            raise CliError(f"cannot write {snapshot}: {error.strerror or error}") from None
        note(f"wrote {snapshot}")
        return
    try:
        await serve(name_server, host, port, log, partial(_ready, host))
    except OSError as error:
        address = Address(host, port)
        raise CliError(f"cannot listen on {address}: {error.strerror or error}; --port chooses another") from None


def _ready(host: str, address: str) -> None:
    note(f"the console is at {printable(address)} (Ctrl-C ends it)")
    if not is_loopback(host):
        note(
            f"warning: whoever reaches {printable(host)} may read messages and change groups here: the pages ask for "
            f"no password; leave --host away, or put a server with accounts before them"
        )
