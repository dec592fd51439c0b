"""A pull consumer: reads every queue of the topic from offset 0 to its end, --at-once messages a pull."""

import argparse
import ctypes
from typing import Any

from librocketmq import arguments, check, configure, dll, emit, ffi, message_fields

FOUND, NO_NEW_MESSAGE, TIMED_OUT = 0, 1, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--expression", default="*")
    given = arguments(parser)
    consumer = dll.CreatePullConsumer(given.group.encode())
    configure("PullConsumer", consumer, given)
    check(dll.StartPullConsumer(consumer), "StartPullConsumer")
    queues, count = ctypes.POINTER(ffi._CMessageQueue)(), ctypes.c_int()  # noqa: SLF001  it has no public name
    fetched = dll.FetchSubscriptionMessageQueues(
        consumer, given.topic.encode(), ctypes.pointer(queues), ctypes.pointer(count)
    )
    check(fetched, "FetchSubscriptionMessageQueues")
    for index in range(count.value):
        read(consumer, queues[index], given)
    dll.ReleaseSubscriptionMessageQueue(queues)
    dll.ShutdownPullConsumer(consumer)
    emit("done", story=given.story, queues=count.value)


def read(consumer: Any, queue: Any, given: argparse.Namespace) -> None:
    offset, status = 0, FOUND
    while status != NO_NEW_MESSAGE:
        result = dll.Pull(consumer, ctypes.pointer(queue), given.expression.encode(), offset, given.at_once)
        status = result.pullStatus
        if status != TIMED_OUT:  # which has no offset
            offset = result.nextBeginOffset
        if status == FOUND:
            for index in range(result.size):
                emit("handled", story=given.story, **message_fields(result.msgFoundList[index]))
        dll.ReleasePullResult(result)


if __name__ == "__main__":
    main()
