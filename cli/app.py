"""`lockstep`: talk to a Lockstep broker or a RocketMQ cluster. The entry point: signals, event loop, errors.

Exit status: 0 for success; 1 when something failed; 2 for a wrong call; 130 after Ctrl-C; 143 after SIGTERM; 141 when
the reader of stdout has closed it.

Slow imports are inside functions, where a Ctrl-C is already handled.
"""

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    import typer

    from lockstep.cli.options import Work

__all__ = ["main"]

_FAILED, _USAGE = 1, 2
_INTERRUPTED = 128 + signal.SIGINT
_DEBUG_VARIABLE = "LOCKSTEP_DEBUG"


class _Stopped(Exception):
    """A signal ended the command after its cleanup, or its reader closed stdout (SIGPIPE)."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def _run(work: "Work", **_options: object) -> None:
    """Run the work that a command returned, while the files of its options are still open."""
    try:
        if callable(work):
            if signal.getsignal(signal.SIGINT) is _leave:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            work()
            return
        import asyncio

        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_until_signal(work))
    except BrokenPipeError:
        raise _Stopped(signal.SIGPIPE) from None
    except KeyboardInterrupt:
        raise _Stopped(signal.SIGINT) from None


def _loop_factory() -> "Callable[[], asyncio.AbstractEventLoop]":
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run the work; the first SIGINT, SIGTERM or SIGHUP cancels it. A second signal ends the process at once.

    A terminal that closes sends SIGHUP. Under nohup SIGHUP is ignored, and it stays ignored.
    """
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def stop(number: int) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    if not os.environ.get(_DEBUG_VARIABLE):
        loop.set_exception_handler(_first_error_only())
    try:
        await work
    except asyncio.CancelledError:
        if not received:
            raise
    if received:
        raise _Stopped(received[0])


def _first_error_only() -> "Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]":
    """Log only the first error that a background task left, as one line; asyncio would print a traceback for each."""
    from lockstep.cli.output import note

    seen: list[object] = []

    def handle(_loop: "asyncio.AbstractEventLoop", context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not seen:
            note(_own_error(f"{type(error).__name__}: {error}" if error is not None else context["message"]))
        seen.append(error)

    return handle


def _own_error(text: str) -> str:
    return f"an error of lockstep's own: {text} ({_DEBUG_VARIABLE}=1 shows where)"


def main() -> None:
    """The entry point. Every error is one line on stderr."""
    from lockstep.remoting.host.report_stream import open_reports

    open_reports()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell ignores it for background jobs
        signal.signal(signal.SIGINT, _leave)
    sys.exit(_status())


def _leave(*_: object) -> None:
    """SIGINT during the imports: nothing runs yet that needs a cleanup."""
    os._exit(_INTERRUPTED)


def _status() -> int:
    import typer

    from lockstep.cli.commands import app, root
    from lockstep.cli.output import CliError, note
    from lockstep.remoting.host.exits import status_of

    app.callback(result_callback=_run)(root)
    try:
        return app(standalone_mode=False) or 0
    except _Stopped as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as ended:
        return status_of(ended)
    except CliError as error:
        note(str(error))
        return error.exit_code
    except typer.TyperException as error:
        return _misused(error)
    except Exception as error:
        return _failed(error)


def _misused(error: "typer.TyperException") -> int:
    """Print an error that typer found. Without a command, typer gives the help text instead, printed as it is."""
    from lockstep.cli.output import note

    text = error.format_message()
    if text.startswith("Usage:"):
        sys.stderr.write(text + "\n")
    else:
        text = text.replace("Value error, ", "").rstrip(".")
        note(f"{text} (--help lists what is allowed)")
    return error.exit_code


def _failed(error: Exception) -> int:
    from lockstep.cli.output import note
    from lockstep.client.errors import ClientError
    from lockstep.protocol.errors import LocalProtocolError, ProtocolError
    from lockstep.protocol.filter import FilterError
    from lockstep.remoting.errors import RemotingError
    from lockstep.remoting.settings import SettingError

    if isinstance(error, SettingError | LocalProtocolError | FilterError):
        note(str(error))
        return _USAGE
    if isinstance(error, ClientError | RemotingError | ProtocolError):
        note(str(error))
        return _FAILED
    if os.environ.get(_DEBUG_VARIABLE):
        raise error
    note(_own_error(f"{type(error).__name__}: {error}"))
    return _FAILED
