"""The driver of RocketMQ's own Python client of gRPC: `driver5.py produce|simple|push --name value ...`.

The options and the events, JSON lines on stdout, are those of java5/Grpc*.java. A consumer ends when its stdin does.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

ANSWER_TIMEOUT_S = 15  # where much else runs, the client's 3 s are not enough for a first answer
AWAIT_S = 5
BATCH = 4


class Driver:
    """What the command line asks for: an option by its name, and the three roles."""

    def __init__(self, arguments: list[str]) -> None:
        self.given = {
            name.removeprefix("--"): value for name, value in zip(arguments[::2], arguments[1::2], strict=True)
        }
        self.topic = self.given["topic"]
        self.tls = self.given.get("tls") == "true"
        account = Credentials(self.given.get("access-key", ""), self.given.get("secret-key", ""))
        self.configuration = ClientConfiguration(self.given["endpoints"], account, request_timeout=ANSWER_TIMEOUT_S)

    def number(self, name: str, otherwise: int = 0) -> int:
        return int(self.given.get(name, otherwise))

    def produce(self) -> Producer | None:
        """--messages of them, --keys in turn as message groups (0: none), --first number; --delay-ms until they are
        delivered, of which --recall takes the first one back. With --transactions each is sent in one: by its number
        modulo 3 it is committed (0), rolled back (1), or left to the broker's question (2), answered with a commit
        until stdin ends."""
        producer = Producer(self.configuration, (self.topic,), Checker(), self.tls)
        producer.startup()
        first, transactions = self.number("first"), self.given.get("transactions") == "true"
        for seq in range(first, first + self.number("messages", 1)):
            message, transaction = self.message(seq), producer.begin_transaction() if transactions else None
            receipt = producer.send(message, transaction)
            emit("sent", topic=self.topic, seq=seq, key=message.message_group or None, msgId=receipt.message_id)
            if transaction and seq % 3 < 2:
                transaction.rollback() if seq % 3 else transaction.commit()
            if seq == first and self.given.get("recall") == "true":
                emit("recalled", seq=seq, msgId=producer.recall_message(self.topic, receipt.recall_handle))
        if transactions:
            return producer
        producer.shutdown()
        return None

    def message(self, seq: int) -> Message:
        message = Message()
        message.topic, message.body = self.topic, str(seq).encode()
        message.add_property("seq", str(seq))
        if keys := self.number("keys"):
            message.message_group = f"key-{seq % keys}"
        if "delay-ms" in self.given:
            message.delivery_timestamp = int(time.time() + self.number("delay-ms") / 1000)
        return message

    def simple(self) -> SimpleConsumer:
        """--invisible-s."""
        consumer = SimpleConsumer(
            self.configuration, self.given["group"], self.subscribed(), await_duration=AWAIT_S, tls_enable=self.tls
        )
        consumer.startup()
        threading.Thread(target=self.receive, args=(consumer,), daemon=True).start()
        return consumer

    def receive(self, consumer: SimpleConsumer) -> None:
        while consumer.is_running:
            try:
                for message in consumer.receive(BATCH, self.number("invisible-s", 15)) or ():
                    self.handle(message)
                    consumer.ack(message)
                    emit("acked", msgId=message.message_id)
            except Exception as error:
                emit("failed", error=str(error))
                time.sleep(1)

    def push(self) -> PushConsumer:
        consumer = PushConsumer(
            self.configuration, self.given["group"], Listener(self), self.subscribed(), tls_enable=self.tls
        )
        consumer.startup()
        return consumer

    def subscribed(self) -> dict[str, FilterExpression]:
        return {self.topic: FilterExpression()}

    def handle(self, message: Message) -> ConsumeResult:
        """Handle a message as --hang-at and --fail say; it is said before it is acknowledged."""
        seq = int(message.properties["seq"])
        if seq == self.number("hang-at", -1):
            emit("hangs", seq=seq)
            threading.Event().wait()
        result = ConsumeResult.FAILURE if seq == self.number("fail", -1) else ConsumeResult.SUCCESS
        emit(
            "handled",
            topic=message.topic,
            msgId=message.message_id,
            key=message.message_group or None,
            tags=message.tag or None,
            seq=seq,
            body=message.body.decode(),
            attempt=message.delivery_attempt,
            status=result.name,
        )
        return result


class Listener(MessageListener):  # type: ignore[misc]
    """Passes on to the driver."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def consume(self, message: Message) -> ConsumeResult:
        return self.driver.handle(message)


class Checker(TransactionChecker):  # type: ignore[misc]
    """Commits what the broker asks for."""

    def check(self, message: Message) -> int:
        emit("asked", seq=int(message.properties["seq"]))
        ending: int = TransactionResolution.COMMIT
        return ending


def emit(event: str, **fields: Any) -> None:
    """One event as one line; it is written before this returns."""
    line = {"event": event, **fields, "wall_ms": time.time_ns() // 1_000_000}
    os.write(1, json.dumps(line).encode() + b"\n")


def main(role: str, *arguments: str) -> None:
    """The process ends at once when its work does: the client's threads would keep it for its long polls."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    told = logging.StreamHandler()  # the client tells of a refusal in its log alone
    told.setLevel(logging.ERROR)
    logging.getLogger("rocketmq-python-client").addHandler(told)
    try:
        driver = Driver(list(arguments))
        running = {"produce": driver.produce, "simple": driver.simple, "push": driver.push}[role]()
    except Exception as error:
        traceback.print_exc()
        emit("failed", error=str(error))
        os._exit(1)
    emit("ready" if running else "done")
    if running:
        sys.stdin.read()
        running.shutdown()
        emit("closed")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
