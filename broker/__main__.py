"""`lockstep-broker`: run a broker and its name server until SIGINT or SIGTERM, or until its stdin closes.

Slow imports are inside functions, which run when Ctrl-C is handled already.
"""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lockstep.remoting.host.report_stream import open_reports

if TYPE_CHECKING:
    import asyncio

    from lockstep.broker.control_port import ControlPort
    from lockstep.broker.metrics.server import MetricsServer
    from lockstep.broker.multi_process.link import CommandLink
    from lockstep.broker.options import Options
    from lockstep.broker.server import BrokerServer
    from lockstep.broker.start_log import StartLog

__all__ = ["main"]

_INTERRUPTED = 130
_KILLED = 4
# Instead of the number of a signal.
_STDIN_CLOSED = 0


def main(arguments: list[str] | None = None) -> None:
    """Exit status: 0 after SIGTERM or a closed stdin, 130 after SIGINT, 1 for a failure, 2 for invalid options.

    With `--brokers`, 4 when a broker did not end and was killed. A broker that such a command started ends with
    PORT_IN_USE when another process has its port.
    """
    # Before anything opens a file, which would get the number of a closed stderr.
    open_reports()
    # A background job of a shell ignores SIGINT, and this process must go on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    # Imports leave next to no garbage, and to look for it takes a twentieth of the start.
    gc.disable()
    import asyncio

    import lockstep.broker.server  # noqa: F401 - the slow import, while Ctrl-C still ends the process
    from lockstep.broker.cannot_listen import CannotListen
    from lockstep.broker.options import parse_options
    from lockstep.broker.start_log import StartLog
    from lockstep.protocol.errors import LocalProtocolError
    from lockstep.remoting.settings import SettingError
    from lockstep.store.errors import StoreUnusable

    gc.freeze()
    gc.enable()
    given = sys.argv[1:] if arguments is None else arguments
    options = parse_options(given)
    if options.member:
        from lockstep.broker.multi_process.plan import as_member  # imported here: other brokers do not need it

        options = as_member(options)
    log = StartLog()
    _allow_open_files()
    try:
        with asyncio.Runner(loop_factory=_loop_factory(log)) as runner:
            status = runner.run(_serve(options, log) if options.brokers == 1 else _serve_many(options, given, log))
    except (CannotListen, LocalProtocolError, SettingError, StoreUnusable) as error:
        _print_line(str(error), **_process_field(options))
        status = 1
        if options.member and isinstance(error, CannotListen) and error.in_use:
            from lockstep.broker.multi_process.supervisor import PORT_IN_USE

            status = PORT_IN_USE
    sys.exit(status)


def _allow_open_files() -> None:
    """Use as many open files as the system lets this process have; often its first limit is 1,024. As the JVM does."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            # macOS has a lower limit of its own.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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


async def _until_stopped(options: "Options") -> "asyncio.Future[int]":
    """Done when the process must end, with the number of the signal, or _STDIN_CLOSED."""
    import asyncio

    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, stopped, number)
    if options.end_with_stdin and not options.member:
        from lockstep.broker.stdin_watch import watch_stdin  # imported here: few brokers need it

        await watch_stdin(lambda: _stop(stopped, _STDIN_CLOSED))
    return stopped


async def _serve_many(options: "Options", arguments: list[str], log: "StartLog") -> int:
    """A name server in this process, and each broker in a process of its own."""
    from lockstep.broker.multi_process.command import ManyBrokers  # imported here: one broker does not need it
    from lockstep.remoting.host.runtime import AsyncioRuntime

    stopped = await _until_stopped(options)
    many = ManyBrokers(options, arguments, AsyncioRuntime(host=options.config.advertised_host), log)

    def on_serving() -> None:
        _print_addresses(many.listening())
        log.open(options.log_format, options.log_level, sys.stderr, AsyncioRuntime().monotonic_ns)
        _warn_if_open(options, log)

    stopped.add_done_callback(lambda _: log.info("shutting_down", **_why(stopped.result())))
    await many.run(stopped, on_serving)
    if many.failure:
        _print_line(many.failure)
        return _KILLED if many.killed else 1
    return _INTERRUPTED if stopped.result() == signal.SIGINT else 0


async def _serve(options: "Options", log: "StartLog") -> int:
    from lockstep.broker.full_collections import FullCollections
    from lockstep.remoting.host.runtime import AsyncioRuntime

    stopped = await _until_stopped(options)
    link = await _open_link(options, stopped) if options.member else None
    server, control, metrics = _make_servers(options, log)
    for topic in options.topics:
        server.create_topic(topic.name, topic.queue_nums)
    if link is not None and server.broker is not None:
        await link.join(server.broker)
    await server.start()
    try:
        if control is not None:
            await control.start(options.control_port or 0)
        if metrics is not None:
            await metrics.start(options.metrics_port or 0)
        addresses = _addresses(options, server, control, metrics)
        if link is None:
            _print_addresses(addresses)
        else:
            await link.serving(server, addresses)
        # Objects made at start-up stay; the collector need not visit them again.
        gc.freeze()
        FullCollections(AsyncioRuntime().monotonic_ns).watch()
        log.open(
            options.log_format, options.log_level, sys.stderr, AsyncioRuntime().monotonic_ns, **_process_field(options)
        )
        log.info("listening", **_facts(options))
        if not options.member:
            _warn_if_open(options, log)
        for name, above, why in options.config.too_short_for_default_clients():
            given = getattr(options.config, name)
            log.warning(
                "setting_needs_matching_clients", setting=name, given=given, default_clients_need_above=above, why=why
            )
        number = await stopped
        log.info("shutting_down", **_why(number))
    finally:
        if metrics is not None:
            metrics.close()
        if control is not None:
            control.close()
        await server.shutdown()
    return _INTERRUPTED if number == signal.SIGINT else 0


async def _open_link(options: "Options", stopped: "asyncio.Future[int]") -> "CommandLink":
    from lockstep.broker.multi_process.link import CommandLink
    from lockstep.broker.multi_process.plan import decode_member
    from lockstep.remoting.host.runtime import AsyncioRuntime

    waits = decode_member(options.member).waits
    link = CommandLink(AsyncioRuntime(), waits, lambda: _stop(stopped, _STDIN_CLOSED))
    await link.open()
    return link


def _warn_if_open(options: "Options", log: "StartLog") -> None:
    """Say what whoever reaches this machine may do without an account."""
    from lockstep.remoting.settings import is_loopback

    config = options.config
    if is_loopback(config.host):
        return
    if not config.acl_enable:
        effect = "whoever reaches it may read, send and change everything; --acl FILE asks for accounts"
        log.warning("open_without_accounts", host=config.host, effect=effect)
    if options.metrics_port is not None:
        effect = "its names of topics and groups are for everybody: it has no accounts"
        log.warning("open_without_accounts", host=config.host, port=options.metrics_port, effect=effect)


def _why(number: int) -> dict[str, str]:
    return {"signal": signal.Signals(number).name} if number else {"reason": "stdin closed"}


def _make_servers(
    options: "Options", log: "StartLog"
) -> "tuple[BrokerServer, ControlPort | None, MetricsServer | None]":
    from lockstep.broker.server import BrokerServer
    from lockstep.remoting.host.runtime import AsyncioRuntime

    runtime = AsyncioRuntime(host=options.config.advertised_host)
    on_progress = partial(_print_line, **_process_field(options))
    if options.config.data_dir and not options.member:
        from lockstep.broker.multi_process.folders import (
            store_folders,  # imported here: a broker in memory does not need it
        )

        store_folders(runtime.storage, options.config.data_dir, [options.config.broker_name])
    control: ControlPort | None = None
    if options.control_port is None:
        server = BrokerServer(options.config, runtime, log, on_progress=on_progress)
    else:
        from lockstep.broker.control_port import control_port_plug_in  # imported here: other brokers do not need it

        server, control = control_port_plug_in()(options.config, runtime, log, on_progress)
    if options.metrics_port is None or server.broker is None:
        return server, control, None
    from lockstep.broker.metrics.server import MetricsServer  # imported here: other brokers do not need it

    return server, control, MetricsServer(server.broker, runtime, options.config.host)


def _print_line(text: str, process: str = "") -> None:
    sys.stderr.write(f"lockstep-broker: {process and f'{process}: '}{text}\n")
    sys.stderr.flush()


def _process_field(options: "Options") -> dict[str, str]:
    """Names the process in its log, when the log is shared with other brokers."""
    return {"process": options.config.broker_name} if options.member else {}


def _stop(stopped: "asyncio.Future[int]", number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


def _addresses(
    options: "Options", server: "BrokerServer", control: "ControlPort | None", metrics: "MetricsServer | None"
) -> dict[str, str]:
    found = {}
    if options.config.serve_broker:
        found["broker"] = server.broker_address
        if server.grpc_address:
            found["grpc"] = server.grpc_address
    if options.config.serve_name_server:
        found["name-server"] = server.name_server_address
    if control is not None:
        found["control"] = control.address
    if metrics is not None:
        found["metrics"] = f"http://{metrics.address}/metrics"
    return found


def _print_addresses(addresses: dict[str, str]) -> None:
    """Raises SettingError when nobody can read them."""
    from lockstep.remoting.settings import SettingError

    line = " ".join(["listening", *(f"{what}={address}" for what, address in addresses.items())])
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (OSError, AttributeError) as error:
        # AttributeError: Python has no sys.stdout when the caller closed it.
        # Without stdout the interpreter does not write the line again at its end, and does not fail again.
        sys.stdout = None
        why = error.strerror if isinstance(error, OSError) else "it is closed"
        raise SettingError(f"stdout: cannot write the addresses: {why}") from None


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
