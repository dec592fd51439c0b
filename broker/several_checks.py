"""Which options several brokers refuse."""

from collections import Counter
from string import ascii_lowercase
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.protocol.codes import MASTER_ID, TOPIC_LENGTH_MAX
from lockstep.remoting.settings import PORT_MAX, SettingError

__all__ = ["PORT_STEP", "broker_names", "check_several"]

PORT_STEP: Final = 10  # as in RocketMQ's examples: 10911, 10921 ...; the VIP channels are between them (wire.md 1.1)
_FIRST: Final = "-a"


def broker_names(name: str, count: int) -> list[str]:
    """ "shop" and "shop-a" -> "shop-a", "shop-b" ..."""
    base = name.removesuffix(_FIRST)
    return [f"{base}-{letter}" for letter in ascii_lowercase[:count]]


def check_several(config: BrokerConfig, count: int, control_port: int | None, metrics_port: int | None) -> None:
    """Check the options of `--brokers N` with N of 2 or more. Raises SettingError."""
    if not config.serve_broker:
        raise SettingError("--brokers: --role name-server has no brokers")
    if control_port is not None:
        raise SettingError("--control-port: is of one broker, and cannot be used with --brokers")
    if config.tls_mode == "test" and config.data_dir:
        raise SettingError("--tls test: with --brokers and --data-dir, give a certificate: --tls permissive --tls-cert")
    if config.broker_id != MASTER_ID:
        raise SettingError(f"brokerId: must be {MASTER_ID} with --brokers: each of them is a master")
    if config.serve_name_server and config.name_servers:
        raise SettingError("--name-server: with --brokers, either join its brokers (--role broker) or run one")
    if len(broker_names(config.broker_name, 1)[0]) > TOPIC_LENGTH_MAX:
        most = TOPIC_LENGTH_MAX - len(_FIRST)
        raise SettingError(f"--broker-name: with --brokers at most {most} characters are allowed, as -a, -b ... follow")
    brokers = [config.port + PORT_STEP * number for number in range(count)] if config.port else []
    metrics = [metrics_port + number for number in range(count)] if metrics_port else []
    grpc = [config.grpc_port + number for number in range(count)] if config.grpc_port else []
    for option, ports in (("--port", brokers), ("--metrics-port", metrics), ("--grpc-port", grpc)):
        if ports and ports[-1] > PORT_MAX:
            raise SettingError(f"{option}: {count} brokers need the ports {ports[0]} to {ports[-1]}")
    name_server = [config.name_server_port] if config.serve_name_server and config.name_server_port else []
    counts = Counter([*brokers, *name_server, *metrics, *grpc])
    taken = sorted(port for port, count in counts.items() if count > 1)
    if taken:
        needed = ", ".join(map(str, brokers))
        raise SettingError(f"--brokers: port {taken[0]} is needed twice; the brokers have {needed or 'free ones'}")
