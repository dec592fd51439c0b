"""How a handler says no from any depth: with the code and the remark of the reply."""

from lockstep.broker.config import BrokerConfig
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.errors import shown

__all__ = ["Refusal", "check_filters_by"]


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
