"""Refusal: an exception with the code and the remark of the reply; and common checks that raise it."""

from lockstep.broker.config import BrokerConfig
from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.ownership.claim import Claiming
from lockstep.broker.ownership.denial import Act, Denial
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.errors import short_text

__all__ = ["Refusal", "check_filters_by", "check_limit", "check_owner", "refuse_if"]


class Refusal(Exception):
    """A handler refuses a request; its text is the remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def check_filters_by(config: BrokerConfig, expression_type: str | None) -> None:
    """Raises Refusal unless `property_filter` is on, with RocketMQ's remark, which people search for."""
    if not config.property_filter:
        kind = short_text(expression_type).strip("'")
        remark = f"The broker does not support consumer to filter message by {kind}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)


def check_limit(broker: Broker, connection: Connection, setting: str, count: int, now_ms: int) -> None:
    """Raises Refusal and logs `limit_met` when `count` exceeds the setting."""
    maximum = getattr(broker.config, setting)
    if count > maximum:
        broker.limits.met(setting, maximum, now_ms, connection.address)
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{count} exceed the broker's setting {setting}: {maximum}")


def refuse_if(denial: Denial | None) -> None:
    """Raises Refusal for a denial of ownership."""
    if denial is not None:
        raise Refusal(denial.code, denial.remark)


def check_owner(broker: Broker, connection: Connection, claim: Claiming, act: Act, now_ms: int) -> None:
    """Raises Refusal when another client owns the queue, or the epoch of the claim is over."""
    refuse_if(broker.ownership.deny(connection, claim, act, now_ms))
