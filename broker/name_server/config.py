"""The settings of a name server, taken from those of its process."""

from dataclasses import dataclass

from lockstep.remoting.settings import setting

__all__ = ["NameServerConfig"]


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """The settings of a name server, taken from a BrokerConfig."""

    host: str = setting("127.0.0.1", name="bindAddress")
    port: int = setting(9876, name="listenPort")
    order_message_enable: bool = setting(False, name="orderMessageEnable", live=True)
    broker_expired_timeout_ms: int = 120_000
    brokers_max: int = 1000
    routes_max: int = 200_000  # topics of all brokers
    kv_configs_max: int = 10_000
    kv_characters_max: int = 2_000_000
    structured_body_bytes_max: int = 1024 * 1024
