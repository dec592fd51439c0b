"""The command line of `lockstep-broker`, as a BrokerConfig. It imports little, so that the broker starts fast."""

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from lockstep.broker.config import TLS_MODES, VIP_PORT_BELOW, BrokerConfig
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_topic
from lockstep.remoting.credentials import credentials_of_environment
from lockstep.remoting.settings import PORT_MAX, SettingError, with_properties
from lockstep.remoting.texts import duration_us

__all__ = ["OptionHelp", "Options", "TopicOption", "option_helps", "parse_options", "parse_size", "parse_topic"]

_UNITS = {"": 1, "B": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
_UNITS |= {"KB": 1000, "MB": 1000**2, "GB": 1000**3}
_SIZE = re.compile(r"(\d+)\s*([a-zA-Z]*)")
_WHOLE = re.compile(r"-?\d{1,18}")
_ROLES = {"all": (True, True), "broker": (True, False), "name-server": (False, True)}
_BROKERS_MAX = 26  # broker-a to broker-z
_GRPC_PORT = 8081  # the default of RocketMQ's proxy
_NO_PORT = "none"
_PATHS = ("DIR", "FILE")
# What an error may name, and what the user types for it.
_OPTION_OF_SETTING = {
    "port": "--port", "grpc_port": "--grpc-port", "name_server_port": "--name-server-port",
    "name_servers": "--name-server", "broker_name": "--broker-name", "memory_limit_bytes": "--memory-limit",
    "data_dir": "--data-dir",
    "flush_sync": "--flush", "lock_max_live_time_ms": "--lock-live-ms", "lock_mode": "--lock-mode",
    "lock_delay_ms": "--lock-delay-ms", "lock_delay_legacy_ms": "--lock-delay-legacy-ms",
    "lock_grace_ms": "--lock-grace-ms", "fence_legacy": "--fence-legacy", "acl_file": "--acl",
    "acl_checks": "--acl-checks",
    "tls_mode": "--tls", "tls_cert": "--tls-cert", "tls_key": "--tls-key", "tls_client_ca": "--tls-client-ca",
}  # fmt: skip
_LOG_LEVELS = ("debug", "info", "warning", "error")


class TopicOption(NamedTuple):
    name: str
    queue_nums: int


class Options(NamedTuple):
    config: BrokerConfig
    topics: tuple[TopicOption, ...]
    log_format: str
    log_level: str
    control_port: int | None
    metrics_port: int | None
    end_with_stdin: bool
    brokers: int = 1
    member: str = ""


def parse_size(text: str) -> int:
    """Bytes of "1GiB", "512M", "4096". K, M, G and KiB, MiB, GiB are powers of 1024; KB, MB, GB of 1000."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write for example 512MiB or 1GiB")
    return int(match[1]) * unit


def parse_topic(text: str) -> TopicOption:
    """Read "orders:8": a topic and its number of queues."""
    name, colon, queues = text.rpartition(":")
    if not colon or not (queues.isascii() and queues.isdigit()) or int(queues) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:QUEUES; write for example orders:8")
    try:
        check_topic(name)
    except LocalProtocolError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return TopicOption(name, int(queues))


def _milliseconds(text: str) -> int:
    """A number of milliseconds, or a duration such as 10s."""
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return duration_us(text) // 1000
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write for example 10s, 500ms or 10000") from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _BROKERS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers; 1 to {_BROKERS_MAX} are allowed")
    return int(text)


def _port_or_none(text: str) -> int | str:
    if text == _NO_PORT:
        return text
    if not (text.isascii() and text.isdigit() and int(text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to {PORT_MAX}, nor {_NO_PORT!r}")
    return int(text)


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not PROPERTY=VALUE")
    return name.strip(), value.strip()


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, and keeps a list of its options."""

    def __init__(self, **settings: Any) -> None:
        self.options: list[argparse.Action] = []
        super().__init__(**settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        if action.help != argparse.SUPPRESS:
            self.options.append(action)
        return action

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


def _parser(defaults: BrokerConfig) -> _Parser:
    parser = _Parser(
        prog="lockstep-broker",
        description="Run a RocketMQ-compatible broker, with a name server in it.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="store_true", help="show the version and exit")
    add("--host", metavar="HOST", default=defaults.host, help="address to listen on (default %(default)s)")
    add("--port", metavar="PORT", type=int, default=defaults.port, help="the broker's port (default %(default)s)")
    add("--grpc-port", metavar="PORT", type=_port_or_none,
        help="a port for clients of RocketMQ 5, or none; needs the extra grpc "
        f"(default {_GRPC_PORT} where the extra is installed and the port is free; with --port 0 none)")  # fmt: skip
    add("--name-server-port", metavar="PORT", type=int, default=defaults.name_server_port,
        help="the name server's port (default %(default)s); 0 picks a free one, as for --port")  # fmt: skip
    add("--advertise", metavar="HOST", default="", help="address given to clients, in routes and ids (default: --host)")
    add("--role", choices=sorted(_ROLES), help="what to run (default all; with --name-server: broker)")
    add("--name-server", metavar="ADDR", action="append", default=[], dest="name_servers",
        help="register with the name server at HOST:PORT; may be repeated, or hold several separated by ;")  # fmt: skip
    add("--broker-name", metavar="NAME", default=defaults.broker_name, help="default %(default)s")
    add("--brokers", metavar="N", type=_count, default=1,
        help="so many brokers, broker-a, broker-b ..., a process each, with one name server (default 1)")  # fmt: skip
    add("--member", default="", help=argparse.SUPPRESS)  # a process of --brokers: what it has of its own
    add("--cluster", metavar="NAME", default=defaults.cluster, help="default %(default)s")
    add("--topic", metavar="NAME:QUEUES", action="append", default=[], type=parse_topic, dest="topics",
        help="create a topic at start; may be repeated")  # fmt: skip
    add("--dead-letter-at-once", action=argparse.BooleanOptionalAction, default=defaults.dead_letter_at_once,
        help="dead letters appear at once, without RocketMQ's delay of up to 2 h")  # fmt: skip
    add("--no-auto-create-topics", action="store_true", help="a send to an unknown topic is an error")
    add("--memory-limit", metavar="SIZE", type=parse_size, default=defaults.memory_limit_bytes,
        help="without --data-dir: memory for messages; above it the oldest are dropped (default 1GiB)")  # fmt: skip
    add("--data-dir", metavar="DIR",
        help="store everything here, in RocketMQ's layout, for restarts (default: in memory only)")  # fmt: skip
    add("--flush", choices=("async", "sync"), default="async",
        help="sync: a send is answered when it is synced to disk (default %(default)s: a moment before)")  # fmt: skip
    add("--trace", metavar="FILE",
        help="with --data-dir: after a crash, write here which offsets may have gone back")  # fmt: skip
    _add_modes(add, defaults)
    _add_security(add, defaults)
    add("-D", metavar="PROPERTY=VALUE", action="append", default=[], type=_property, dest="properties",
        help="any setting under RocketMQ's name or ours; may be repeated")  # fmt: skip
    add("--log-format", choices=("console", "json"), default="console", help="how to log on stderr")
    add("--log-level", choices=_LOG_LEVELS, default="info", help="default %(default)s")
    add("--metrics-port", metavar="PORT", type=int,
        help="a port for Prometheus, path /metrics; needs the extra lockstep-mq[metrics]")  # fmt: skip
    add("--control-port", metavar="PORT", type=int,
        help="for tests: a port of 127.0.0.1 to move the clock, make requests fail and see what arrived")  # fmt: skip
    add("--end-with-stdin", action="store_true", help="end when stdin closes")
    return parser


class OptionHelp(NamedTuple):
    """An option as the help shows it.

    Args:
        value: The name of its value; None: it takes none.
        is_path: Its value is a file or a folder.
    """

    name: str
    help: str
    value: str | None
    choices: tuple[str, ...]
    is_path: bool
    repeats: bool


def option_helps() -> list[OptionHelp]:
    """All options, in the order of the help, for shells that complete them."""
    found = []
    for action in _parser(BrokerConfig()).options:
        value = None if action.nargs == 0 else str(action.metavar or action.dest.upper())
        text = (action.help or "") % vars(action)
        choices, repeats = tuple(map(str, action.choices or ())), isinstance(action.default, list)
        names = action.option_strings
        found += [OptionHelp(name, text, value, choices, value in _PATHS, repeats) for name in names]
    return found


def _add_modes(add: Callable[..., Any], defaults: BrokerConfig) -> None:
    add("--lock-live-ms", metavar="MS", type=_milliseconds, default=defaults.lock_max_live_time_ms,
        help="life of a queue lock without a renewal (default %(default)s)")  # fmt: skip
    add("--lock-mode", metavar="MODE", default=defaults.lock_mode,
        help="faithful: RocketMQ's locks (default); fenced: only the owner of a queue pulls and commits")  # fmt: skip
    add("--rocketmq", choices=("4", "5"), default=defaults.rocketmq,
        help="answer as this version, where they differ (default: as 5 where no client of 4 can tell)")  # fmt: skip
    add("--lock-delay-ms", metavar="MS", type=_milliseconds, default=defaults.lock_delay_ms,
        help="fenced: how long a queue rests after its owner's connection ended (default %(default)s)")  # fmt: skip
    add("--lock-delay-legacy-ms", metavar="MS", type=_milliseconds, default=defaults.lock_delay_legacy_ms,
        help="fenced: the same for other clients, since their last renewal (default %(default)s)")  # fmt: skip
    add("--lock-grace-ms", metavar="MS", type=_milliseconds, default=defaults.lock_grace_ms,
        help="fenced: after a start without lock table, old owners come first (default: --lock-live-ms)")  # fmt: skip
    add("--fence-legacy", choices=("refuse", "warn", "off"), default=defaults.fence_legacy,
        help="fenced: pulls and commits of other clients that do not own the queue (default %(default)s)")  # fmt: skip


def _add_security(add: Callable[..., Any], defaults: BrokerConfig) -> None:
    add("--acl", metavar="FILE",
        help="check signatures and permissions by this plain_acl.yml and the folder acl beside it")  # fmt: skip
    add("--acl-checks", choices=("rocketmq", "strict"), default=defaults.acl_checks,
        help="with ACL: strict also closes what RocketMQ leaves open (default %(default)s)")  # fmt: skip
    add("--tls", metavar="MODE", choices=TLS_MODES, default=defaults.tls_mode,
        help="disabled (default), permissive, enforcing, or test: with a certificate that it makes")  # fmt: skip
    add("--tls-cert", metavar="FILE", default="", help="the server's certificate, PEM")
    add("--tls-key", metavar="FILE", default="", help="its key, PEM (default: in --tls-cert)")
    add("--tls-client-ca", metavar="FILE", default="",
        help="clients must show a certificate that this file, PEM, signs")  # fmt: skip


def _version_line() -> str:
    from importlib.metadata import version  # imported here: slow, and rarely needed

    from lockstep.protocol.native import arm

    return f"lockstep-broker {version('lockstep-mq')}, {arm()}\n"


def parse_options(arguments: list[str]) -> Options:
    """Parse the command line. Exits with status 2 and one line on stderr for invalid options."""
    defaults = BrokerConfig()
    parser = _parser(defaults)
    given = parser.parse_args(arguments)
    if given.version:
        sys.stdout.write(_version_line())
        parser.exit()
    role = given.role or ("broker" if given.name_servers else "all")
    serve_broker, serve_name_server = _ROLES[role]
    if given.topics and not serve_broker:
        parser.error("--topic: a name server without a broker has no topics")
    if given.data_dir == "":
        parser.error("--data-dir: must name a folder; without the option the store is in memory")
    if given.data_dir and not serve_broker:
        parser.error("--data-dir: a name server without a broker has no store")
    if given.trace and not given.data_dir:
        parser.error("--trace: needs --data-dir: a store in memory has no offsets after a crash")
    try:
        config = with_properties(
            defaults,
            dict(given.properties),
            host=given.host,
            advertise=given.advertise,
            port=given.port,
            name_server_port=given.name_server_port,
            serve_broker=serve_broker,
            serve_name_server=serve_name_server,
            name_servers=";".join(given.name_servers),
            broker_name=given.broker_name,
            cluster=given.cluster,
            auto_create_topics=not given.no_auto_create_topics,
            dead_letter_at_once=given.dead_letter_at_once,
            memory_limit_bytes=given.memory_limit,
            data_dir=given.data_dir or defaults.data_dir,
            flush_sync=given.flush == "sync",
            trace=given.trace or defaults.trace,
            **_grpc_port(given),
            **_modes(given),
            **_security(given, defaults),
            log_debug=given.log_level == "debug",
        )
    except SettingError as error:
        parser.error(_in_options(str(error), {name for name, _ in given.properties}))
    if config.acl_enable or config.acl_checks == "strict":
        _check_acl(parser, config)
    if given.control_port is not None and not 0 <= given.control_port <= PORT_MAX:
        parser.error(f"--control-port: must be a port, 0 to {PORT_MAX}")
    if given.metrics_port is not None:
        _check_metrics(parser, given.metrics_port, serve_broker=serve_broker)
    ports = (given.control_port, given.metrics_port)
    if given.brokers > 1 and not given.member:
        _check_several(parser, config, given.brokers, *ports)
    logs = (given.log_format, given.log_level)
    return Options(config, tuple(given.topics), *logs, *ports, given.end_with_stdin, given.brokers, given.member)


def _in_options(text: str, properties: set[str]) -> str:
    """The text with the names of options for those of settings; what -D named keeps its name."""

    def name(match: re.Match[str]) -> str:
        return match[0] if match[0] in properties else _OPTION_OF_SETTING.get(match[0], match[0])

    return re.sub(r"^port(?=:)|\b[a-z]+(?:_[a-z]+)+\b", name, text)


def _grpc_port(given: argparse.Namespace) -> dict[str, Any]:
    """Without the option, a port that nothing else needs; who wants free ports wants no fixed one either."""
    if given.grpc_port is not None:
        return {"grpc_port": None if given.grpc_port == _NO_PORT else given.grpc_port}
    if not given.port or any(name == "grpc_port" for name, _ in given.properties):
        return {}
    needed = {given.port, given.port - VIP_PORT_BELOW, given.name_server_port, given.control_port, given.metrics_port}
    if given.brokers > 1:
        from lockstep.broker.several_checks import PORT_STEP  # imported here: one broker does not need it

        for number in range(1, given.brokers):
            port = given.port + PORT_STEP * number
            needed |= {port, port - VIP_PORT_BELOW, (given.metrics_port or 0) + number}
    if needed & set(range(_GRPC_PORT, _GRPC_PORT + given.brokers)):
        return {}
    return {"grpc_port": _GRPC_PORT, "grpc_optional": True}


def _modes(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "lock_max_live_time_ms": given.lock_live_ms,
        "lock_mode": given.lock_mode,
        "rocketmq": given.rocketmq,
        "lock_delay_ms": given.lock_delay_ms,
        "lock_delay_legacy_ms": given.lock_delay_legacy_ms,
        "lock_grace_ms": given.lock_grace_ms,
        "fence_legacy": given.fence_legacy,
    }


def _security(given: argparse.Namespace, defaults: BrokerConfig) -> dict[str, Any]:
    return {
        "acl_enable": given.acl is not None,
        "acl_file": given.acl or defaults.acl_file,
        "acl_checks": given.acl_checks,
        "credentials": credentials_of_environment(),
        "tls_mode": given.tls,
        "tls_cert": given.tls_cert,
        "tls_key": given.tls_key,
        "tls_client_ca": given.tls_client_ca,
        "tls_client_auth": "require" if given.tls_client_ca else defaults.tls_client_auth,
    }


def _check_acl(parser: _Parser, config: BrokerConfig) -> None:
    from importlib.util import find_spec  # imported here: few brokers need it

    if not config.acl_enable:
        parser.error("--acl-checks strict: needs --acl FILE or -D aclEnable=true")
    if find_spec("yaml") is None:
        parser.error("--acl: needs PyYAML; install it: pip install 'lockstep-mq[acl]'")


def _check_several(parser: _Parser, config: BrokerConfig, count: int, *ports: int | None) -> None:
    from lockstep.broker.several_checks import check_several  # imported here: one broker does not need it

    try:
        check_several(config, count, *ports)
    except SettingError as error:
        parser.error(str(error))


def _check_metrics(parser: _Parser, port: int, *, serve_broker: bool) -> None:
    from importlib.util import find_spec  # imported here: few brokers need it

    if not 0 <= port <= PORT_MAX:
        parser.error(f"--metrics-port: must be a port, 0 to {PORT_MAX}")
    if not serve_broker:
        parser.error("--metrics-port: a name server without a broker has no metrics")
    if find_spec("prometheus_client") is None:
        parser.error("--metrics-port: needs prometheus_client; install it: pip install 'lockstep-mq[metrics]'")
