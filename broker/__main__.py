"""`lockstep-broker`: run a broker and its name server until SIGINT or SIGTERM, or until its stdin closes.

Slow imports are inside functions, which run when Ctrl-C is handled already.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from lockstep.broker.fault_api.server import ControlServer
    from lockstep.broker.metrics.server import MetricsServer
    from lockstep.broker.options import Options
    from lockstep.broker.server import BrokerServer
    from lockstep.broker.start_log import StartLog

__all__ = ["main"]

_INTERRUPTED = 130
_STDIN_CLOSED = 0  # instead of the number of a signal


def main(arguments: list[str] | None = None) -> None:
    """Exit status: 0 after SIGTERM or a closed stdin, 130 after SIGINT, 1 for a failed start, 2 for invalid options."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in a background job of a shell it is ignored
        signal.signal(signal.SIGINT, _leave)
    import asyncio

    import lockstep.broker.server  # noqa: F401 - the slow import, while Ctrl-C still ends the process
    from lockstep.broker.cannot_listen import CannotListen
    from lockstep.broker.options import parse_options
    from lockstep.broker.start_log import StartLog
    from lockstep.protocol.errors import LocalProtocolError
    from lockstep.remoting.settings import SettingError
    from lockstep.store.errors import StoreUnusable

    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    log = StartLog()
    try:
        with asyncio.Runner(loop_factory=_loop_factory(log)) as runner:
            status = runner.run(_serve(options, log))
    except (CannotListen, LocalProtocolError, SettingError, StoreUnusable) as error:
        sys.stderr.write(f"lockstep-broker: {error}\n")
        status = 1
    sys.exit(status)


def _leave(*_: object) -> None:
    """Exit during the imports: nothing has started yet, and a traceback would not help."""
    os._exit(_INTERRUPTED)


def _loop_factory(log: "StartLog") -> "Callable[[], asyncio.AbstractEventLoop]":
    try:
        import uvloop
    except ImportError:
        import asyncio

        log.warning("uvloop_missing", effect="asyncio runs the broker, at about half the speed")
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(options: "Options", log: "StartLog") -> int:
    import asyncio
    import gc

    stopped = asyncio.get_running_loop().create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, stopped, number)
    if options.end_with_stdin:
        from lockstep.broker.stdin_watch import watch_stdin  # imported here: few brokers need it

        await watch_stdin(lambda: _stop(stopped, _STDIN_CLOSED))
    server, control, metrics = _make_servers(options, log)
    for topic in options.topics:
        server.create_topic(topic.name, topic.queue_nums)
    await server.start()
    try:
        if control is not None:
            await control.start(options.control_port or 0)
        if metrics is not None:
            await metrics.start(options.metrics_port or 0)
        sys.stdout.write(_listening_line(options, server, control, metrics))
        sys.stdout.flush()
        gc.freeze()  # objects made at start-up stay; the collector need not visit them again
        log.open(options.log_format, options.log_level, sys.stderr)
        log.info("listening", **_facts(options))
        for name, above, why in options.config.too_short_for_default_clients():
            given = getattr(options.config, name)
            log.info(
                "setting_needs_matching_clients", setting=name, given=given, default_clients_need_above=above, why=why
            )
        number = await stopped
        log.info("shutting_down", **({"signal": signal.Signals(number).name} if number else {"reason": "stdin closed"}))
    finally:
        if metrics is not None:
            metrics.close()
        if control is not None:
            control.close()
        await server.shutdown()
    return _INTERRUPTED if number == signal.SIGINT else 0


def _make_servers(
    options: "Options", log: "StartLog"
) -> "tuple[BrokerServer, ControlServer | None, MetricsServer | None]":
    from lockstep.broker.server import BrokerServer
    from lockstep.remoting.runtime import AsyncioRuntime

    runtime = AsyncioRuntime(host=options.config.advertised_host)
    control: ControlServer | None = None
    if options.control_port is None:
        server = BrokerServer(options.config, runtime, log, on_progress=_print_progress)
    else:
        from lockstep.broker.fault_api.server import make_controlled  # imported here: other brokers do not need it

        server, control = make_controlled(options.config, runtime, log, _print_progress)
    if options.metrics_port is None or server.broker is None:
        return server, control, None
    from lockstep.broker.metrics.server import MetricsServer  # imported here: other brokers do not need it

    return server, control, MetricsServer(server.broker, runtime, options.config.host)


def _print_progress(text: str) -> None:
    sys.stderr.write(f"lockstep-broker: {text}\n")
    sys.stderr.flush()


def _stop(stopped: "asyncio.Future[int]", number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


def _listening_line(
    options: "Options", server: "BrokerServer", control: "ControlServer | None", metrics: "MetricsServer | None"
) -> str:
    parts = ["listening"]
    if options.config.serve_broker:
        parts.append(f"broker={server.broker_address}")
    if options.config.serve_name_server:
        parts.append(f"name-server={server.name_server_address}")
    if control is not None:
        parts.append(f"control={control.address}")
    if metrics is not None:
        parts.append(f"metrics=http://{metrics.address}/metrics")
    return " ".join(parts) + "\n"


def _facts(options: "Options") -> dict[str, object]:
    import asyncio

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
