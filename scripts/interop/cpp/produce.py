"""Producers: --kind of KINDS, --messages, keys in turn (--keys of them), --body-bytes, --tags, --delay-level.

--tries: of a send without a route.
"""

import argparse
import ctypes
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from librocketmq import SHARDING_KEY, SendResult, arguments, check, configure, dll, emit, ffi

TRIES = 3
NO_ROUTE = b"No route info"
ANSWER_TIMEOUT_S = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), default="sync")
    parser.add_argument("--messages", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument("--body-bytes", type=int, default=0)
    parser.add_argument("--tags", default="")
    parser.add_argument("--delay-level", type=int, default=0)
    parser.add_argument("--pause-ms", type=int, default=0)
    parser.add_argument("--tries", type=int, default=TRIES)
    given = arguments(parser)
    producer = dll.CreateProducer(given.group.encode())
    configure("Producer", producer, given)
    check(dll.StartProducer(producer), "StartProducer")
    try:
        KINDS[given.kind](producer, given)
    finally:
        dll.ShutdownProducer(producer)
    emit("done", story=given.story)


class Outgoing:
    """Message number `seq`: its body is the number, filled up to --body-bytes with text that compresses."""

    def __init__(self, given: argparse.Namespace, seq: int) -> None:
        tags = given.tags.split(",")
        self.given, self.seq, self.key, self.tag = given, seq, f"key-{seq % given.keys}", tags[seq % len(tags)]
        filling = " in order"
        self.body = (str(seq) + filling * (given.body_bytes // len(filling))).encode()
        self.handle = dll.CreateMessage(given.topic.encode())
        dll.SetMessageKeys(self.handle, self.key.encode())
        if self.tag:
            dll.SetMessageTags(self.handle, self.tag.encode())
        dll.SetByteMessageBody(self.handle, self.body, len(self.body))
        dll.SetMessageProperty(self.handle, SHARDING_KEY.encode(), self.key.encode())
        dll.SetMessageProperty(self.handle, b"seq", str(seq).encode())
        if given.delay_level:
            dll.SetDelayTimeLevel(self.handle, given.delay_level)

    def sent(self, result: Any = None, **more: Any) -> None:
        """Say so; `result` is None where the library gives none."""
        if result is not None:
            more |= {"status": result.sendStatus, "msgId": result.msgId.decode(), "queueOffset": result.offset}
        content = {
            "story": self.given.story,
            "topic": self.given.topic,
            "key": self.key,
            "tags": self.tag,
            "seq": self.seq,
            "bodyBytes": len(self.body),
        }
        emit("sent", **content, bodyCrc32=zlib.crc32(self.body), **more)
        dll.DestroyMessage(self.handle)


def messages(given: argparse.Namespace) -> list[Outgoing]:
    return [Outgoing(given, seq) for seq in range(given.first, given.first + given.messages)]


def check_sent(given: argparse.Namespace, send: Callable[[], int], what: str) -> None:
    """Send, and again without a route: the library waits for it for 3 s, which a busy machine may need for another."""
    status = send()
    for _ in range(1, given.tries):
        if status != 0 and NO_ROUTE in dll.GetLatestErrorMessage():
            status = send()
    check(status, what)


def send_sync(producer: Any, given: argparse.Namespace) -> None:
    for message in messages(given):
        result = SendResult()
        send = partial(dll.SendMessageSync, producer, message.handle, ctypes.pointer(result))
        check_sent(given, send, "SendMessageSync")
        message.sent(result)


def send_async(producer: Any, given: argparse.Namespace) -> None:
    """Each is answered on a thread of the library's.

    Those that failed are sent again: the first finds no connection yet, and the library does not wait for it long.
    """
    left = messages(given)
    for _ in range(TRIES):
        left = not_sent(producer, left)
        if not left:
            return
    raise RuntimeError(f"{len(left)} sends failed {TRIES} times")


def not_sent(producer: Any, outgoing: list[Outgoing]) -> list[Outgoing]:
    """Send all at once; those whose send failed, once all are answered."""
    open_sends, unsent = threading.Semaphore(0), list[Outgoing]()
    callbacks = []  # the library keeps no reference
    for message in outgoing:

        def succeeded(result: Any, message: Outgoing = message) -> None:
            message.sent(result.contents)
            open_sends.release()

        def failed(error: Any, message: Outgoing = message) -> None:
            emit("failed", seq=message.seq, error=error.msg.decode(errors="replace"))
            unsent.append(message)
            open_sends.release()

        callbacks.append((ffi.SEND_SUCCESS_CALLBACK(succeeded), ffi.SEND_EXCEPTION_CALLBACK(failed)))
        check(dll.SendMessageAsync(producer, message.handle, *callbacks[-1]), "SendMessageAsync")
    for _ in callbacks:
        if not open_sends.acquire(timeout=ANSWER_TIMEOUT_S):
            raise RuntimeError("a send was not answered")
    return unsent


def send_one_way(producer: Any, given: argparse.Namespace) -> None:
    for message in messages(given):
        check(dll.SendMessageOneway(producer, message.handle), "SendMessageOneway")
        message.sent()


def send_ordered(producer: Any, given: argparse.Namespace) -> None:
    """The queue that Java's SelectMessageQueueByHash takes: abs(hash % n), by the remainder of Java."""

    def select(queues: int, message: Any, hashed: Any) -> int:
        return int(abs(ctypes.cast(hashed, ctypes.POINTER(ctypes.c_int))[0])) % queues

    selector = ffi.QUEUE_SELECTOR_CALLBACK(select)
    for message in messages(given):
        hashed, result = ctypes.c_int(java_hash(message.key)), SendResult()
        place = ctypes.cast(ctypes.pointer(hashed), ctypes.c_void_p)
        given_to = producer, message.handle, selector, place, TRIES, ctypes.pointer(result)
        check_sent(given, partial(dll.SendMessageOrderly, *given_to), "SendMessageOrderly")
        message.sent(result)
        time.sleep(given.pause_ms / 1000)


def send_batch(producer: Any, given: argparse.Namespace) -> None:
    """All in one request."""
    batch, result, all_messages = dll.CreateBatchMessage(), SendResult(), messages(given)
    for message in all_messages:
        check(dll.AddMessage(batch, message.handle), "AddMessage")
    check(dll.SendBatchMessage(producer, batch, ctypes.pointer(result)), "SendBatchMessage")
    for message in all_messages:
        message.sent(result)
    dll.DestroyBatchMessage(batch)


def java_hash(text: str) -> int:
    """String.hashCode of a text of the basic plane."""
    hashed = 0
    for letter in text:
        hashed = (31 * hashed + ord(letter)) % 2**32
    return hashed - 2**32 if hashed >= 2**31 else hashed


KINDS: dict[str, Callable[[Any, argparse.Namespace], None]] = {
    "sync": send_sync,
    "async": send_async,
    "one-way": send_one_way,
    "ordered": send_ordered,
    "batch": send_batch,
}

if __name__ == "__main__":
    main()
