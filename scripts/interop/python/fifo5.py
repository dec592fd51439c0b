"""Sends with RocketMQ's own Python client of gRPC, and reads what it sent: `fifo5.py ENDPOINT TOPIC GROUP COUNT`.

Prints a line of JSON: the number of each message read, by its message group, in the order of reading.
"""

import json
import sys

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

INVISIBLE_S = 15


def main(endpoint: str, topic: str, group: str, count: int) -> None:
    """Two message groups take turns."""
    configuration = ClientConfiguration(endpoint, Credentials())
    producer = Producer(configuration, (topic,))
    producer.startup()
    for number in range(count):
        message = Message()
        message.topic, message.body, message.message_group = topic, str(number).encode(), f"group-{number % 2}"
        producer.send(message)
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()})
    consumer.startup()
    found: dict[str, list[int]] = {}
    while sum(map(len, found.values())) < count:
        for message in consumer.receive(4, INVISIBLE_S) or ():
            found.setdefault(message.message_group, []).append(int(message.body))
            consumer.ack(message)
    print(json.dumps(found), flush=True)
    consumer.shutdown()
    producer.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
