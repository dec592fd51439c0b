"""What a handler returns when its answer may have to wait: the answer, and after what it leaves."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, final

from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.model import MessageQueue

__all__ = ["After", "Answer", "Begun", "What"]


class What(Enum):
    """What must be done before an answer leaves; `answers` waits for it."""

    LOG = auto()  # messages are as safe as the settings ask for, and so is their topic
    TOPICS = auto()  # a change of topics is on the disk
    ROUTES = auto()  # as TOPICS; then name servers know it
    GROUPS = auto()  # a change of groups is on the disk


class Begun(NamedTuple):
    """Periods of ownership of one group that began at one time, by queue and epoch: they are on the disk."""

    consumer_group: str
    periods: Sequence[tuple[MessageQueue, int]]
    now_ms: int


@final
class After(NamedTuple):
    """An answer that leaves after something else."""

    reply: RemotingCommand
    what: What | Begun


Answer = RemotingCommand | After
