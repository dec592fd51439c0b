"""How a handler says no from any depth: with the code and the remark of the reply."""

from lockstep.broker.config import BrokerConfig
from lockstep.broker.connection import Connection
from lockstep.broker.state.broker import Broker
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.errors import shown

__all__ = ["Refusal", "check_filters_by", "check_limit"]


class Refusal(Exception):
    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def check_filters_by(config: BrokerConfig, expression_type: str | None) -> None:
    """Raises Refusal, unless the broker is told to filter by properties. RocketMQ's words: people search for them."""
    if not config.property_filter:
        kind = shown(expression_type).strip("'")
        remark = f"The broker does not support consumer to filter message by {kind}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)


def check_limit(broker: Broker, connection: Connection, setting: str, count: int, now_ms: int) -> None:
    """Raises Refusal, and logs, when `count` is more than the setting of that name allows."""
    maximum = getattr(broker.config, setting)
    if count > maximum:
        broker.limits.met(setting, maximum, now_ms, connection.address)
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"{count} are more than the broker's setting {setting} allows: {maximum}"
        )
