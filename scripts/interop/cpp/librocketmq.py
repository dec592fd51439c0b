"""What its drivers share: arguments, events as JSON lines on stdout, an end when stdin ends or SIGTERM comes.

The library is used as the wheel `rocketmq` carries it, through the functions of its C interface alone: the wheel's own
wrapper answers SUCCESS for a listener that raises. The wheel has to be on the PYTHONPATH.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from rocketmq import ffi

__all__ = [
    "SHARDING_KEY",
    "SendResult",
    "arguments",
    "check",
    "configure",
    "dll",
    "emit",
    "ffi",
    "message_fields",
    "wait_for_the_end",
]

SHARDING_KEY = "__SHARDINGKEY"
BODY_SHOWN_MAX = 64
LOG_LEVELS = {"fatal": 1, "error": 2, "warn": 3}  # librocketmq's

dll = ffi.dll
SendResult = ffi._CSendResult  # noqa: SLF001  the wheel has no public name for it
_stdout = threading.Lock()


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of the driver, and those that all have."""
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--story", default="")
    parser.add_argument("--access-key", default="")
    parser.add_argument("--secret-key", default="")
    parser.add_argument("--log-level", choices=sorted(LOG_LEVELS), default="fatal")
    return parser.parse_args()


def emit(event: str, **fields: Any) -> None:
    """One event as one line; it is written before this returns."""
    fields = {"event": event, **fields, "wall_ms": time.time_ns() // 1_000_000, "t_ns": time.monotonic_ns()}
    with _stdout:
        os.write(1, (json.dumps(fields) + "\n").encode())


def check(status: int, what: str) -> None:
    """Raises RuntimeError with the library's own words."""
    if status != 0:
        raise RuntimeError(
            f"{what} failed with {status}: {dll.GetLatestErrorMessage().decode(errors='replace').strip()}"
        )


def configure(kind: str, handle: Any, given: argparse.Namespace) -> None:
    """What a Producer, a PushConsumer and a PullConsumer take alike; without --access-key the key is empty.

    The library logs to logs/rocketmq-cpp in the home folder.
    """

    def put(setting: str, *values: Any) -> None:
        check(getattr(dll, f"Set{kind}{setting}")(handle, *values), setting)

    put("NameServerAddress", given.name_server.encode())
    put("LogLevel", LOG_LEVELS[given.log_level])
    if given.access_key:
        put("SessionCredentials", given.access_key.encode(), given.secret_key.encode(), b"")


def message_fields(handle: Any) -> dict[str, Any]:
    """A message as the listener gets it; the body up to its first zero byte, which is all the C interface gives."""
    body = dll.GetMessageBody(handle)
    seq = dll.GetMessageProperty(handle, b"seq")
    return {
        "topic": dll.GetMessageTopic(handle).decode(),
        "queueId": dll.GetMessageQueueId(handle),
        "queueOffset": dll.GetMessageQueueOffset(handle),
        "msgId": dll.GetMessageId(handle).decode(),
        "reconsumeTimes": dll.GetMessageReconsumeTimes(handle),
        "bornTimestamp": dll.GetMessageBornTimestamp(handle),
        "storeTimestamp": dll.GetMessageStoreTimestamp(handle),
        "key": _text(dll.GetMessageProperty(handle, SHARDING_KEY.encode())),
        "keys": _text(dll.GetMessageKeys(handle)),
        "tags": _text(dll.GetMessageTags(handle)),
        "seq": int(seq) if seq else None,
        "body": body.decode() if len(body) <= BODY_SHOWN_MAX else None,
        "bodyBytes": len(body),
        "bodyCrc32": zlib.crc32(body),
    }


def wait_for_the_end(close: Callable[[], None]) -> None:
    """Return never: when stdin ends or SIGTERM comes, close and leave."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())

    def watch() -> None:
        sys.stdin.buffer.read()
        ending.set()

    threading.Thread(target=watch, daemon=True).start()
    while not ending.wait(0.1):
        pass  # signals are handled between two waits
    close()
    emit("closed")
    os._exit(0)  # the library's threads may still be about


def _text(value: bytes | None) -> str | None:
    return value.decode() if value else None
