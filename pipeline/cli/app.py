"""`lockstep-pipeline`: publish, audit and lag on Spark. The entry point: signals and errors.

Exit status: 0; 1 when something failed; 2 for a wrong call; 3 when an audit found violations or loss, 4 when it
could not decide; 130 after Ctrl-C; 143 after SIGTERM; 141 when the reader of stdout has closed it.
"""

import logging
import os
import signal
import sys
from importlib.metadata import version
from types import FrameType
from typing import Annotated

import typer

from lockstep.cli.access import AccessKey, SecretKey, Tls, TlsCa, TlsCert, TlsKey, use_account, use_tls
from lockstep.cli.output import UsageError
from lockstep.pipeline.cli.commands import app
from lockstep.pipeline.cli.errors import is_of_reader, note, one_line
from lockstep.pipeline.errors import ColumnError, OptionError
from lockstep.protocol.errors import LocalProtocolError
from lockstep.remoting.host.exits import status_of
from lockstep.remoting.host.report_stream import open_reports
from lockstep.remoting.settings import SettingError

__all__ = ["main"]

_FAILED, _USAGE = 1, 2
_DEBUG_VARIABLE = "LOCKSTEP_DEBUG"
_MISUSED = (UsageError, OptionError, ColumnError, SettingError, LocalProtocolError)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstep-pipeline {version('lockstep-mq')}")
        raise typer.Exit


@app.callback()
def _root(
    access_key: AccessKey = None,
    secret_key: SecretKey = None,
    tls: Tls = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options of `lockstep-pipeline` itself. Sources and sinks take the account and TLS of the driver's process."""
    use_account(access_key, secret_key)
    use_tls(tls, tls_ca, tls_cert, tls_key)


def main() -> None:
    """The entry point. Every error is one line on stderr; LOCKSTEP_DEBUG=1 shows a traceback."""
    open_reports()
    signal.signal(signal.SIGTERM, _terminated)
    if not os.environ.get(_DEBUG_VARIABLE):
        logging.disable()  # libraries log tracebacks of errors that we print as one line
    sys.exit(_status())


def _terminated(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _status() -> int:
    try:
        return app(standalone_mode=False) or 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SystemExit as leaving:
        return status_of(leaving)
    except typer.TyperException as error:
        return _misused(error)
    except _MISUSED as error:
        note(str(error))
        return _USAGE
    except Exception as error:
        if (ended := _ended_by(error)) is not None:
            return ended
        if os.environ.get(_DEBUG_VARIABLE):
            raise
        note(one_line(error))
        return _FAILED


def _ended_by(error: BaseException) -> int | None:
    """The exit status of a signal that caused the error, or None. The JVM gets the signal too, and may have ended.

    A reader of stdout that has closed it is a signal too, SIGPIPE.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return 128 + signal.SIGINT
        if is_of_reader(cause):
            return 128 + signal.SIGPIPE
        if isinstance(cause, SystemExit) and isinstance(cause.code, int):
            return cause.code
        cause = cause.__cause__ or cause.__context__
    return None


def _misused(error: typer.TyperException) -> int:
    """Print an error that typer found. Without a command, typer gives the help text instead, printed as it is."""
    text = error.format_message()
    if text.startswith("Usage:"):
        sys.stderr.write(text + "\n")
    else:
        note(f"{text.rstrip('.')} (--help lists what is allowed)")
    return error.exit_code
