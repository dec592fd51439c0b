"""Refusal: an exception with the code and the remark of the reply; RocketMQ's codes of what the core refuses."""

from collections.abc import Mapping
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.refused import Denied, Reason, Refused
from lockstep.broker.ownership.denial import Denial
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.errors import short_text
from lockstep.store import StoreFull

__all__ = ["REFUSALS", "Refusal", "check_filters_by", "code_of", "refuse_if"]


class Refusal(Exception):
    """A handler refuses a request; its text is the remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


REFUSALS: Final = (Refusal, Refused, StoreFull)
_CODES: Final[Mapping[Reason, ResponseCode]] = {
    Reason.INVALID: ResponseCode.SYSTEM_ERROR,
    Reason.NOT_PERMITTED: ResponseCode.NO_PERMISSION,
    Reason.NO_TOPIC: ResponseCode.TOPIC_NOT_EXIST,
    Reason.NO_GROUP: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    Reason.ILLEGAL_MESSAGE: ResponseCode.MESSAGE_ILLEGAL,
    Reason.OUT_OF_SEQUENCE: ResponseCode.SEND_OUT_OF_SEQUENCE,
}


def code_of(refused: Refusal | Refused | StoreFull) -> ResponseCode:
    """The code of the reply. Of a full store it is that of all requests but sends, which have one of their own."""
    if isinstance(refused, Refusal):
        return refused.code
    if isinstance(refused, StoreFull):
        return ResponseCode.SYSTEM_ERROR
    return refused.denial.code if isinstance(refused, Denied) else _CODES[refused.reason]


def check_filters_by(config: BrokerConfig, expression_type: str | None) -> None:
    """Raises Refusal unless `property_filter` is on, with RocketMQ's remark, which people search for."""
    if not config.property_filter:
        kind = short_text(expression_type).strip("'")
        remark = f"The broker does not support consumer to filter message by {kind}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)


def refuse_if(denial: Denial | None) -> None:
    """Raises Refusal for a denial of ownership."""
    if denial is not None:
        raise Refusal(denial.code, denial.remark)
