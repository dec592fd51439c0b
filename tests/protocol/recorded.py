"""The recorded frames of real clients and brokers, read once, and how many of each command there are."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand, decode_command
from lockstep.protocol.frame import Frame, FrameDecoder
from tests.rows import by_row

__all__ = [
    "ADMIN", "CPP", "FRAMES", "GO", "GROUPS", "JAVA", "JAVA_BINARY", "NODE", "VECTORS",
    "Recorded", "each_file", "each_group", "frames_of", "group_of", "recorded_in",
]  # fmt: skip

VECTORS = Path(__file__).parent.parent / "vectors"
CPP, GO, JAVA, JAVA_BINARY, ADMIN, NODE = (
    "cpp-1.0.1-ordered",
    "go-2.1.2-ordered",
    "java-4.9.8-ordered",
    "java-4.9.8-ordered-binary-header",
    "mqadmin-4.9.8",
    "node-ali-ons-3.12",
)
R = RequestCode

_OF_JAVA: dict[RequestCode, tuple[int, int]] = {
    R.PULL_MESSAGE: (13, 10),
    R.QUERY_CONSUMER_OFFSET: (6, 6),
    R.UPDATE_CONSUMER_OFFSET: (15, 0),
    R.HEART_BEAT: (5, 5),
    R.UNREGISTER_CLIENT: (4, 4),
    R.GET_CONSUMER_LIST_BY_GROUP: (6, 6),
    R.NOTIFY_CONSUMER_IDS_CHANGED: (1, 0),
    R.LOCK_BATCH_MQ: (5, 5),
    R.UNLOCK_BATCH_MQ: (1, 1),
    R.GET_ROUTEINFO_BY_TOPIC: (10, 10),
    R.SEND_MESSAGE_V2: (8, 7),
    R.SEND_BATCH_MESSAGE: (1, 1),
}

# file -> command -> (requests, replies).
FRAMES: Mapping[str, Mapping[RequestCode, tuple[int, int]]] = {
    CPP: {
        R.SEND_MESSAGE: (5, 5),
        R.PULL_MESSAGE: (9, 6),
        R.QUERY_CONSUMER_OFFSET: (3, 3),
        R.UPDATE_CONSUMER_OFFSET: (17, 17),
        R.HEART_BEAT: (2, 2),
        R.UNREGISTER_CLIENT: (2, 2),
        R.GET_CONSUMER_LIST_BY_GROUP: (6, 6),
        R.NOTIFY_CONSUMER_IDS_CHANGED: (1, 0),
        R.LOCK_BATCH_MQ: (5, 5),
        R.UNLOCK_BATCH_MQ: (1, 1),
        R.GET_ROUTEINFO_BY_TOPIC: (8, 8),
    },
    GO: {
        R.SEND_MESSAGE: (9, 9),
        R.PULL_MESSAGE: (8, 4),
        R.QUERY_CONSUMER_OFFSET: (8, 8),
        R.UPDATE_CONSUMER_OFFSET: (4, 0),
        R.HEART_BEAT: (3, 3),
        R.GET_CONSUMER_LIST_BY_GROUP: (2, 2),
        R.NOTIFY_CONSUMER_IDS_CHANGED: (1, 0),
        R.LOCK_BATCH_MQ: (9, 9),
        R.UNLOCK_BATCH_MQ: (1, 1),
        R.GET_ROUTEINFO_BY_TOPIC: (6, 6),
    },
    JAVA: _OF_JAVA,
    # Held pulls are answered, and notices sent, with JSON headers all the same.
    JAVA_BINARY: {**_OF_JAVA, R.PULL_MESSAGE: (12, 9), R.GET_ROUTEINFO_BY_TOPIC: (8, 8)},
    ADMIN: {
        R.PULL_MESSAGE: (1, 1),
        R.QUERY_MESSAGE: (1, 1),
        R.UPDATE_CONSUMER_OFFSET: (2, 2),
        R.UPDATE_AND_CREATE_TOPIC: (1, 1),
        R.GET_BROKER_CONFIG: (1, 0),  # what was answered describes the recording machine
        R.GET_BROKER_RUNTIME_INFO: (2, 0),
        R.GET_MAX_OFFSET: (2, 2),
        R.UNREGISTER_CLIENT: (16, 16),
        R.GET_ROUTEINFO_BY_TOPIC: (43, 43),
        R.GET_BROKER_CLUSTER_INFO: (2, 2),
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (1, 1),
        R.GET_TOPIC_STATS_INFO: (1, 1),
        R.GET_CONSUMER_CONNECTION_LIST: (7, 7),
        R.GET_PRODUCER_CONNECTION_LIST: (1, 1),
        R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (3, 3),
        R.GET_CONSUME_STATS: (8, 8),
        R.DELETE_TOPIC_IN_BROKER: (1, 1),
        R.DELETE_TOPIC_IN_NAMESRV: (1, 1),
        R.INVOKE_BROKER_TO_RESET_OFFSET: (1, 1),
        R.QUERY_TOPIC_CONSUME_BY_WHO: (2, 2),
        R.VIEW_BROKER_STATS_DATA: (2, 2),
        R.GET_BROKER_CONSUME_STATS: (1, 1),
    },
    NODE: {
        R.PULL_MESSAGE: (9, 6),
        R.QUERY_CONSUMER_OFFSET: (3, 3),
        R.UPDATE_CONSUMER_OFFSET: (18, 18),
        R.HEART_BEAT: (2, 2),
        R.UNREGISTER_CLIENT: (2, 2),
        R.CONSUMER_SEND_MSG_BACK: (1, 1),
        R.GET_CONSUMER_LIST_BY_GROUP: (7, 7),
        R.NOTIFY_CONSUMER_IDS_CHANGED: (2, 0),
        R.GET_ROUTEINFO_BY_TOPIC: (4, 4),
        R.SEND_MESSAGE_V2: (4, 4),
    },
}

GROUPS = [
    pytest.param(file, code, direction, id=f"{file}:{code.name}:{direction}")
    for file, commands in FRAMES.items()
    for code, counts in commands.items()
    for direction, count in zip(("request", "reply"), counts, strict=True)
    if count
]
each_group = by_row("file, code, direction", GROUPS)
each_file = by_row("file", FRAMES)


class Recorded(NamedTuple):
    request_code: int
    direction: str
    command: RemotingCommand


@cache
def frames_of(file: str) -> tuple[tuple[str, Frame], ...]:
    """Each line of a file as (link, frame); every line must be exactly one frame."""
    frames = []
    for line in (VECTORS / f"{file}.jsonl").read_text("ascii").splitlines():
        row = json.loads(line)
        decoder = FrameDecoder()
        decoder.feed(bytes.fromhex(row["hex"]))
        frame = decoder.next_frame()
        assert frame is not None
        assert decoder.buffered_bytes == 0
        frames.append((row["link"], frame))
    return tuple(frames)


@cache
def recorded_in(file: str) -> tuple[Recorded, ...]:
    """The frames, each with the code of its request."""
    asked: dict[tuple[str, int], int] = {}
    recorded = []
    for link, frame in frames_of(file):
        command = decode_command(frame)
        if not command.is_reply:
            asked[link, command.opaque] = command.code
        code = asked[link, command.opaque] if command.is_reply else command.code
        recorded.append(Recorded(code, "reply" if command.is_reply else "request", command))
    return tuple(recorded)


def group_of(file: str, code: RequestCode, direction: str) -> list[RemotingCommand]:
    commands = [r.command for r in recorded_in(file) if (r.request_code, r.direction) == (code, direction)]
    assert len(commands) == FRAMES[file][code][direction == "reply"]
    return commands
