"""A push consumer: --orderly true or false, --expression, --answers 3=LATER*2,7=LATER (seq, attempts), --threads."""

import argparse
import threading
import time
from typing import Any

from librocketmq import arguments, check, configure, dll, emit, ffi, message_fields, wait_for_the_end

SUCCESS, LATER = 0, 1
MODELS = {"broadcasting": ffi.MessageModel.BROADCASTING, "clustering": ffi.MessageModel.CLUSTERING}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orderly", choices=("true", "false"), default="true")
    parser.add_argument("--expression", default="*")
    parser.add_argument("--answers", default="")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--work-ms", type=int, default=0)
    parser.add_argument("--model", choices=sorted(MODELS), default="clustering")
    given = arguments(parser)
    consumer = dll.CreatePushConsumer(given.group.encode())
    configure("PushConsumer", consumer, given)
    dll.SetPushConsumerThreadCount(consumer, given.threads)
    dll.SetPushConsumerMessageModel(consumer, MODELS[given.model])
    dll.SetPushConsumerMessageBatchMaxSize(consumer, 1)
    check(dll.Subscribe(consumer, given.topic.encode(), given.expression.encode()), "Subscribe")
    listener = ffi.MSG_CALLBACK_FUNC(Listener(given))
    orderly, concurrently = dll.RegisterMessageCallbackOrderly, dll.RegisterMessageCallback
    register = orderly if given.orderly == "true" else concurrently
    check(register(consumer, listener), "registering the listener")
    check(dll.StartPushConsumer(consumer), "StartPushConsumer")
    emit("ready", story=given.story)
    wait_for_the_end(lambda: dll.ShutdownPushConsumer(consumer))


class Listener:
    """Answers LATER as often as --answers says, by seq; attempts are counted over the process's life."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._work_s = given.work_ms / 1000
        self._story = given.story
        self._lock = threading.Lock()
        self._failures_left: dict[int | None, int] = {}
        for entry in filter(None, given.answers.split(",")):
            seq, _, answer = entry.partition("=")
            self._failures_left[int(seq)] = int(answer.partition("*")[2] or 1)

    def __call__(self, consumer: Any, message: Any) -> int:
        begin_ns = time.monotonic_ns()
        time.sleep(self._work_s)
        fields = message_fields(message)
        with self._lock:
            left = self._failures_left.get(fields["seq"], 0)
            self._failures_left[fields["seq"]] = left - 1
        emit("handled", story=self._story, **fields, status="LATER" if left > 0 else "SUCCESS", begin_ns=begin_ns)
        return LATER if left > 0 else SUCCESS


if __name__ == "__main__":
    main()
