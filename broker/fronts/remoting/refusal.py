"""Refusal: an exception with the code and the remark of the reply; RocketMQ's codes of what the core refuses."""

from collections.abc import Mapping
from typing import Final

from lockstep.broker.core.refused import Denied, Reason, Refused
from lockstep.broker.ownership.denial import Denial
from lockstep.protocol.codes import ResponseCode
from lockstep.store import StoreFull

__all__ = ["REFUSALS", "Refusal", "code_of", "refuse_if"]


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
    Reason.NO_MESSAGE: ResponseCode.NO_MESSAGE,
    Reason.INVALID_PARAMETER: ResponseCode.INVALID_PARAMETER,
    Reason.ILLEGAL_OPERATION: ResponseCode.ILLEGAL_OPERATION,
    Reason.OUT_OF_SEQUENCE: ResponseCode.SEND_OUT_OF_SEQUENCE,
    Reason.NO_SUBSCRIPTION: ResponseCode.SUBSCRIPTION_NOT_EXIST,
    Reason.OLD_SUBSCRIPTION: ResponseCode.SUBSCRIPTION_NOT_LATEST,
    Reason.NO_FILTER: ResponseCode.FILTER_DATA_NOT_EXIST,
    Reason.OLD_FILTER: ResponseCode.FILTER_DATA_NOT_LATEST,
    Reason.INVALID_FILTER: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
}


def code_of(refused: Refusal | Refused | StoreFull) -> ResponseCode:
    """The code of the reply. Of a full store it is that of all requests but sends, which have one of their own."""
    if isinstance(refused, Refusal):
        return refused.code
    if isinstance(refused, StoreFull):
        return ResponseCode.SYSTEM_ERROR
    return refused.denial.code if isinstance(refused, Denied) else _CODES[refused.reason]


def refuse_if(denial: Denial | None) -> None:
    """Raises Refusal for a denial of ownership."""
    if denial is not None:
        raise Refusal(denial.code, denial.remark)
