"""What each of several brokers has of its own: name, ports, folder."""

import json
from dataclasses import replace
from typing import Final, NamedTuple

from lockstep.broker.config import BrokerConfig
from lockstep.broker.multi_process.folders import store_folders
from lockstep.broker.options import Options
from lockstep.broker.several_checks import PORT_STEP, broker_names
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.settings import is_everywhere, is_ipv6
from lockstep.store.format.layout import RULES_FILE

__all__ = ["Member", "as_member", "decode_member", "encode_member", "local_host", "name_server_config", "plan"]

_LOOPBACK: Final = "127.0.0.1"
_LOOPBACK_V6: Final = "::1"  # a port at "::" takes no connection over IPv4
_TLS_ONLY: Final = "enforcing"


class Member(NamedTuple):
    """One broker of several.

    Args:
        metrics_port: None: it has no metrics.
        grpc_port: None: it serves no clients of RocketMQ 5.
        name_servers: Empty: the one of the command, whose address is known when it listens.
        waits: It counts as started when it is registered: the name server is the command's.
    """

    name: str
    port: int
    metrics_port: int | None
    data_dir: str
    trace: str
    acl_file: str
    name_servers: str
    waits: bool
    grpc_port: int | None = None


def plan(options: Options, storage: Storage) -> list[Member]:
    """The brokers of `--brokers N`.

    Raises:
        StoreUnusable, OSError: Of `--data-dir`, as `store_folders` says.
    """
    config = options.config
    names = broker_names(config.broker_name, options.brokers)
    folders = store_folders(storage, config.data_dir, names) if config.data_dir else [""] * len(names)
    acl_file = config.acl_file
    if config.acl_enable and not acl_file:
        acl_file = f"{config.data_dir.rstrip('/')}/{RULES_FILE}"
    return [
        Member(
            name,
            config.port and config.port + PORT_STEP * number,
            options.metrics_port and options.metrics_port + number,
            folder,
            _trace_of(config.trace, name),
            acl_file,
            config.name_servers,
            config.serve_name_server,
            config.grpc_port and config.grpc_port + number,
        )
        for number, (name, folder) in enumerate(zip(names, folders, strict=True))
    ]


def _trace_of(trace: str, name: str) -> str:
    """ "restarts.trace" -> "restarts-broker-b.trace": each broker writes a file."""
    folder, slash, file = trace.rpartition("/")
    stem, dot, ending = file.rpartition(".")
    return f"{folder}{slash}{stem or ending}-{name}{dot if stem else ''}{ending if stem else ''}" if trace else ""


def name_server_config(config: BrokerConfig, acl_file: str) -> BrokerConfig:
    """The settings of the name server that the command has in its own process."""
    return replace(
        config, serve_broker=False, name_servers="", data_dir="", flush_sync=False, trace="", acl_file=acl_file
    )


def local_host(config: BrokerConfig) -> str:
    """Where brokers reach the name server of the command. A certificate names the host that clients use."""
    if config.tls_mode == _TLS_ONLY:
        return config.advertised_host
    if not is_everywhere(config.host):
        return config.host
    return _LOOPBACK_V6 if is_ipv6(config.host) else _LOOPBACK


def as_member(options: Options) -> Options:
    """The options of one broker, from those of all and its `--member`."""
    member = decode_member(options.member)
    only_tls = options.config.tls_mode == _TLS_ONLY
    config = replace(
        options.config,
        serve_name_server=False,
        name_servers=member.name_servers,
        broker_name=member.name,
        port=member.port,
        grpc_port=member.grpc_port,
        data_dir=member.data_dir,
        trace=member.trace,
        acl_file=member.acl_file,
        tls_to_name_servers=options.config.tls_to_name_servers or (member.waits and only_tls),
    )
    return options._replace(config=config, metrics_port=member.metrics_port, brokers=1)


def encode_member(member: Member) -> str:
    return json.dumps(member)


def decode_member(text: str) -> Member:
    return Member(*json.loads(text))
