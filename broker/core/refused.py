"""Refused: a use case does not do what it was asked for, and says why. Fronts have codes of their own for it."""

from enum import Enum, auto

from lockstep.broker.ownership.denial import Denial

__all__ = ["Denied", "Reason", "Refused"]


class Reason(Enum):
    """Why a request is refused."""

    INVALID = auto()  # what it names or asks for cannot be
    NOT_PERMITTED = auto()  # the broker, the topic or the group does not allow it
    NO_TOPIC = auto()
    NO_GROUP = auto()
    ILLEGAL_MESSAGE = auto()
    NO_SUBSCRIPTION = auto()  # the group is not here, or does not subscribe to the topic
    OLD_SUBSCRIPTION = auto()  # the heartbeat with the reader's subscription is still on its way
    NO_FILTER = auto()  # the expression of the group's subscription is invalid
    OLD_FILTER = auto()  # as OLD_SUBSCRIPTION
    INVALID_FILTER = auto()  # the expression that came with the request
    NO_MESSAGE = auto()  # at the offset that is named
    INVALID_PARAMETER = auto()  # of a pop, or of a topic
    ILLEGAL_OPERATION = auto()  # a recall that cannot be
    OUT_OF_SEQUENCE = auto()  # a numbered send that would overtake another
    NOT_OWNER = auto()  # another client has the queue, or the period of ownership is over: `Denied` says more


class Refused(Exception):
    """Its text is for people."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Denied(Refused):
    """The sender does not own the queue."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(Reason.NOT_OWNER, denial.remark)
        self.denial = denial
