"""`lockstep-broker`: run a broker and its name server until SIGINT or SIGTERM, or until its stdin closes."""

import asyncio
import gc
import os
import signal
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockstep.broker.options import Options, parse_options
from lockstep.broker.server import BrokerServer, CannotListen
from lockstep.broker.start_log import StartLog
from lockstep.broker.store.errors import StoreUnusable
from lockstep.protocol.errors import LocalProtocolError
from lockstep.remoting.runtime import AsyncioRuntime
from lockstep.remoting.settings import SettingError

if TYPE_CHECKING:
    from lockstep.broker.control_server import ControlServer

__all__ = ["main"]

_INTERRUPTED = 130
_STDIN_CLOSED = 0  # where the number of a signal stands


def main(arguments: list[str] | None = None) -> None:
    """Exit status: 0 after SIGTERM or a closed stdin, 130 after SIGINT, 1 when it cannot start, 2 for bad options"""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    log = StartLog()
    try:
        with asyncio.Runner(loop_factory=_loop_factory(log)) as runner:
            status = runner.run(_serve(options, log))
    except (CannotListen, LocalProtocolError, SettingError, StoreUnusable) as error:
        sys.stderr.write(f"lockstep-broker: {error}\n")
        status = 1
    sys.exit(status)


def _loop_factory(log: StartLog) -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        log.warning("uvloop is not installed: running on asyncio, at about half the speed")
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(options: Options, log: StartLog) -> int:
    stopped = asyncio.get_running_loop().create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, stopped, number)
    if options.end_with_stdin:
        await _watch_stdin(stopped)
    server, control = _make_servers(options, log)
    for topic in options.topics:
        server.create_topic(topic.name, topic.queue_nums)
    await server.start()
    try:
        if control is not None:
            await control.start(options.control_port or 0)
        sys.stdout.write(_listening_line(options, server, control))
        sys.stdout.flush()
        gc.freeze()  # what start-up made stays; the collector need not look at it again
        log.open(options.log_format, options.log_level, sys.stderr)
        log.info("listening", **_facts(options))
        number = await stopped
        log.info("shutting down", **({"signal": signal.Signals(number).name} if number else {"reason": "stdin closed"}))
    finally:
        if control is not None:
            control.close()
        await server.shutdown()
    return _INTERRUPTED if number == signal.SIGINT else 0


def _make_servers(options: Options, log: StartLog) -> "tuple[BrokerServer, ControlServer | None]":
    runtime = AsyncioRuntime(host=options.config.advertised_host)
    if options.control_port is None:
        return BrokerServer(options.config, runtime, log, tell=_tell), None
    from lockstep.broker.control_server import make_controlled  # no other broker needs it

    return make_controlled(options.config, runtime, log, _tell)


def _tell(text: str) -> None:
    sys.stderr.write(f"lockstep-broker: {text}\n")
    sys.stderr.flush()


def _stop(stopped: "asyncio.Future[int]", number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


class _Stdin(asyncio.Protocol):
    """What comes is not read; that it ends is what matters."""

    def __init__(self, stopped: "asyncio.Future[int]") -> None:
        self._stopped = stopped

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._stopped, _STDIN_CLOSED)


async def _watch_stdin(stopped: "asyncio.Future[int]") -> None:
    mode = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin else 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise SettingError("--end-with-stdin: stdin must be a pipe, whose other end somebody holds")
    await asyncio.get_running_loop().connect_read_pipe(lambda: _Stdin(stopped), sys.stdin)


def _listening_line(options: Options, server: BrokerServer, control: "ControlServer | None") -> str:
    parts = ["listening"]
    if options.config.serve_broker:
        parts.append(f"broker={server.broker_address}")
    if options.config.serve_name_server:
        parts.append(f"name-server={server.name_server_address}")
    if control is not None:
        parts.append(f"control={control.address}")
    return " ".join(parts) + "\n"


def _facts(options: Options) -> dict[str, object]:
    config = options.config
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    return {
        "broker": config.broker_name if config.serve_broker else None,
        "lock_mode": config.lock_mode,
        "lock_max_live_time_ms": config.lock_max_live_time_ms,
        **({"data_dir": config.data_dir} if config.data_dir else {"memory_limit_bytes": config.memory_limit_bytes}),
        "loop": loop,
    }


if __name__ == "__main__":
    main()
