"""`lockstep-broker`: run a broker and its name server until SIGINT or SIGTERM."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable

from lockstep.broker.options import Options, parse_options
from lockstep.broker.server import BrokerServer, CannotListen
from lockstep.broker.start_log import StartLog
from lockstep.protocol.errors import LocalProtocolError
from lockstep.remoting.runtime import AsyncioRuntime

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Exit status: 0 after SIGTERM, 130 after SIGINT, 1 when it cannot listen, 2 for options that make no sense."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    log = StartLog()
    try:
        with asyncio.Runner(loop_factory=_loop_factory(log)) as runner:
            status = runner.run(_serve(options, log))
    except (CannotListen, LocalProtocolError) as error:
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
    server = BrokerServer(options.config, AsyncioRuntime(host=options.config.advertised_host), log)
    for topic in options.topics:
        server.create_topic(topic.name, topic.queue_nums)
    await server.start()
    sys.stdout.write(_listening_line(options, server))
    sys.stdout.flush()
    gc.freeze()  # what start-up made stays; the collector need not look at it again
    log.open(options.log_format, options.log_level, sys.stderr)
    log.info("listening", **_facts(options))
    try:
        number = await stopped
        log.info("shutting down", signal=signal.Signals(number).name)
    finally:
        await server.shutdown()
    return _INTERRUPTED if number == signal.SIGINT else 0


def _stop(stopped: "asyncio.Future[int]", number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


def _listening_line(options: Options, server: BrokerServer) -> str:
    parts = ["listening"]
    if options.config.serve_broker:
        parts.append(f"broker={server.broker_address}")
    if options.config.serve_name_server:
        parts.append(f"name-server={server.name_server_address}")
    return " ".join(parts) + "\n"


def _facts(options: Options) -> dict[str, object]:
    config = options.config
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    return {
        "broker": config.broker_name if config.serve_broker else None,
        "lock_mode": config.lock_mode,
        "lock_max_live_time_ms": config.lock_max_live_time_ms,
        "memory_limit_bytes": config.memory_limit_bytes,
        "loop": loop,
    }


if __name__ == "__main__":
    main()
