"""`lockstep_broker` as a test sees it: addresses, recorded requests, and faults (docs/testing.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.testing.control import ControlConnection
from lockstep.testing.process import Addresses

__all__ = ["Codes", "LockRow", "LockstepBroker", "RecordedRequest"]

Codes = int | str | Sequence[int | str]


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request that the broker received. `at_ms` is the broker's clock, which `advance` moves.

    `ext_fields` are as on the wire. `header` has the same values with types and clear names, for example "queue_id"
    where RocketMQ's send request of version 2 has "e"; it is empty when the header cannot be read.

    Of a gRPC call `name` is its name, `ext_fields` are its metadata and `header` is its message, with the names of
    apache.rocketmq.v2 and without the bodies; `code` is 0. A stream of telemetry is a request for each command.
    """

    serial: int
    at_ms: int
    peer: str
    code: int
    name: str
    opaque: int
    one_way: bool
    body_bytes: int
    ext_fields: Mapping[str, Any]
    header: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LockRow:
    """A lock of a queue. `left_ms` is below 0 when the lock has expired and has no new owner yet."""

    group: str
    topic: str
    broker_name: str
    queue_id: int
    client_id: str
    held_ms: int
    age_ms: int
    left_ms: int

    @property
    def expired(self) -> bool:
        return self.left_ms < 0


class LockstepBroker:
    """A broker for one test. `topic` exists; `topic` and `group` are not used by any other test.

    Every method raises BrokerFailed when the broker has ended, and ValueError for a call that the broker refuses.
    """

    def __init__(self, control: ControlConnection, addresses: Addresses, topic: str, group: str) -> None:
        self._control = control
        self._addresses = addresses
        self.topic = topic
        self.group = group
        self._first_serial = int(control.call("status")["lastSerial"])

    @property
    def address(self) -> str:
        """ "host:port" of the broker."""
        return self._addresses.broker

    @property
    def name_server(self) -> str:
        """ "host:port" of the name server; NAMESRV_ADDR has it during the test."""
        return self._addresses.name_server

    @property
    def endpoint(self) -> str:
        """ "host:port" for RocketMQ 5's clients, plain text and TLS. Raises ValueError without the extra `grpc`."""
        if not self._addresses.grpc:
            raise ValueError("the broker has no port for gRPC: pip install 'lockstep-mq[grpc]'")
        return self._addresses.grpc

    @property
    def control_address(self) -> str:
        """ "host:port" of the control port, for a test in another process."""
        return self._addresses.control

    def now_ms(self) -> int:
        """The broker's clock, epoch milliseconds."""
        return int(self._control.call("status")["nowMs"])

    def create_topic(self, name: str, queues: int = 4, *, message_type: str = "MIXED") -> str:
        """Create a topic, or change its number of queues. Returns its name.

        Args:
            message_type: What RocketMQ 5's clients may send: NORMAL, FIFO, DELAY, TRANSACTION, or MIXED for all.
        """
        self._control.call("create_topic", topic=name, queues=queues, messageType=message_type)
        return name

    def create_group(self, name: str, *, fifo: bool = False, retries: int = 16) -> str:
        """Create a group. Returns its name.

        Args:
            fifo: RocketMQ 5's clients get messages of one message group in order.
            retries: How often a message comes again before it is a dead letter.
        """
        self._control.call("create_group", group=name, fifo=fifo, retries=retries)
        return name

    def requests(self, code: Codes = (), *, after: int = 0) -> list[RecordedRequest]:
        """Requests since the test began, oldest first.

        Args:
            code: Numbers or RocketMQ's names: 41, "LOCK_BATCH_MQ", ("SEND_MESSAGE", "SEND_MESSAGE_V2"); names of gRPC
                calls, such as "ReceiveMessage"; empty for all.
            after: Only requests with a larger serial.

        Raises:
            ValueError: More was asked for than the last 10,000 requests, which the broker keeps.
        """
        rows = self._control.call("requests", after=max(after, self._first_serial), codes=_listed(code))
        return [_request(row) for row in rows]

    def push_error(
        self,
        code: Codes,
        response_code: int | str | None = None,
        *,
        remark: str = "an error that the test asked for",
        times: int = 1,
        drop_connection: bool = False,
        execute_first: bool = False,
        go_away: bool = False,
    ) -> None:
        """Make the next `times` requests with one of these codes fail.

        Args:
            response_code: Code of the error reply. Of a gRPC call a Code of apache.rocketmq.v2 (42900 or
                "TOO_MANY_REQUESTS"), or a status of gRPC (14 or "UNAVAILABLE"). None: that of any error.
            drop_connection: Close the connection instead of a reply.
            execute_first: Handle the request before it fails; only its sender does not learn the result.
            go_away: End the connection of a gRPC client as a broker that stops does: its calls end as UNAVAILABLE, and
                HTTP/2 says GOAWAY.
        """
        self._control.call(
            "push_error",
            codes=_listed(code),
            responseCode=response_code,
            remark=remark,
            times=times,
            dropConnection=drop_connection,
            executeFirst=execute_first,
            goAway=go_away,
        )

    def set_rtt(self, ms: int) -> None:
        """Delay every reply from now on by so many milliseconds of real time."""
        self._control.call("set_rtt", ms=ms)

    def down(self) -> None:
        """Close every connection and refuse new ones, like a crashed broker; its data stays."""
        self._control.call("down")

    def up(self) -> None:
        """Listen again, on the same ports."""
        self._control.call("up")

    def advance(self, seconds: float, *, heartbeats: bool = False) -> None:
        """Move the broker's clock.

        Locks expire, held pulls end, delayed messages are due, silent clients are dropped.

        The broker gets no heartbeats in that time. From about 90 s on it closes the connections of live clients too,
        which then reconnect. With `heartbeats` all connected clients count as heard.
        """
        self._control.call("advance", seconds=seconds, heartbeats=heartbeats)

    def locks(self, group: str | None = None) -> list[LockRow]:
        """The lock table of a group (default: the test's group), sorted by topic and queue."""
        return [_lock(row) for row in self._control.call("locks", group=self.group if group is None else group)]


def _listed(code: Codes) -> list[int | str]:
    return [code] if isinstance(code, int | str) else list(code)


def _request(row: Mapping[str, Any]) -> RecordedRequest:
    return RecordedRequest(
        row["serial"],
        row["atMs"],
        row["peer"],
        row["code"],
        row["name"],
        row["opaque"],
        row["oneWay"],
        row["bodyBytes"],
        row["extFields"],
        row["header"],
    )


def _lock(row: Mapping[str, Any]) -> LockRow:
    queue = row["messageQueue"]
    return LockRow(
        row["consumerGroup"],
        queue["topic"],
        queue["brokerName"],
        queue["queueId"],
        row["clientId"],
        row["heldMs"],
        row["ageMs"],
        row["remainingMs"],
    )
