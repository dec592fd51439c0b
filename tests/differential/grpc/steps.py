"""Cases of gRPC as data: a topic and a group of their own, and what clients do, step by step.

In texts stand `$topic` and `$group` for the names of the case, `$handle(m0)` for the newest receipt handle of the
message with the body m0, `$handle(m0,0)` for the first one, and `$recall(m0)` for its recall handle. A value may be a
function of the player, for what it alone knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

__all__ = [
    "HALF_CLOSE",
    "IN_ORDER",
    "NO_REPLY_S",
    "Ask",
    "Case",
    "Clock",
    "Committed",
    "Drain",
    "Hear",
    "Join",
    "Leave",
    "Resize",
    "Step",
    "Tell",
    "Until",
    "ack",
    "change",
    "forward",
    "group_of",
    "message",
    "polled",
    "push",
    "receive",
    "send",
    "sends",
    "simple",
    "span",
    "topic_of",
]  # fmt: skip

NO_REPLY_S: Final = 2.0  # how long no command is silence
HALF_CLOSE: Final = "half-close"


class Ask(NamedTuple):
    """A call.

    Attributes:
        fields: Of the request.
        seen: Whether the answer is compared; else it must be OK.
        timed: Whether the time of the answer is compared.
        whole: Whether received messages are compared in each field; else body, queue, offset, attempt and handle.
        by_queue: Only how many messages each queue gave is compared: which queue comes first is chance.
        later: The name under which a `Join` waits for the answer; "": the next step begins when it is there.
        timeout_s: The deadline that is told; None: none.
    """

    method: str
    fields: dict[str, Any]
    client: str = "c1"
    seen: bool = True
    timed: bool = False
    whole: bool = False
    by_queue: bool = False
    later: str = ""
    timeout_s: float | None = 30.0
    metadata: Mapping[str, str] = {}


class Tell(NamedTuple):
    """A command in the client's telemetry, and the next that comes back: settings, as a rule."""

    settings: dict[str, Any]
    client: str = "c1"
    seen: bool = True
    command: str = "settings"
    silent: bool = False  # nothing comes back: do not wait long


class Hear(NamedTuple):
    """The next command of the broker, whenever it comes, or that nothing comes within `within_s`."""

    client: str = "c1"
    within_s: float = 60.0


class Leave(NamedTuple):
    """The client's connection closes; HALF_CLOSE: it says no more in its telemetry, and the end is seen."""

    client: str = "c1"
    how: str = "close"


class Join(NamedTuple):
    """The answer to an `Ask` that goes on."""

    later: str


class Clock(NamedTuple):
    """Times count from here."""


class Until(NamedTuple):
    """Nothing happens until the clock shows so many seconds."""

    at_s: float


class Committed(NamedTuple):
    """The group's offset of queue 0."""


class Drain(NamedTuple):
    """Receives until so many messages came; in which queue each was."""

    messages: int


class Resize(NamedTuple):
    """The topic has so many queues from now on."""

    queues: int


Step = Ask | Tell | Hear | Leave | Join | Clock | Until | Committed | Drain | Resize


@dataclass(frozen=True)
class Case:
    """Args:
    kind: The part of the page.
    queues: Of its topic; 0: there is no such topic.
    message_type: Of its topic; "": it has no such attribute.
    in_order: Of its group; None: there is no such group.
    earlier_s: By how much its times are less on our broker.
    within_s: By how much its times may differ.
    """

    kind: str
    name: str
    steps: tuple[Step, ...]
    queues: int = 1
    message_type: str = "NORMAL"
    in_order: bool | None = False
    retries: int = 16
    retry_policy: Mapping[str, Any] | None = None
    earlier_s: float = 0.0
    within_s: float = 0.3
    code: int = field(default=0, init=False)  # it has no request code: see `Case` of remoting

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


# What a case in order has.
IN_ORDER: Final[dict[str, Any]] = {"message_type": "FIFO", "in_order": True}


# Fields ----------------------------------------------------------------------------------------------------------


def topic_of(name: str = "$topic") -> dict[str, Any]:
    return {"topic": {"name": name}}


def group_of(name: str = "$group") -> dict[str, Any]:
    return {"group": {"name": name}}


def span(seconds: float) -> dict[str, int]:
    ms = round(seconds * 1000)
    return {"seconds": int(ms / 1000), "nanos": (ms - int(ms / 1000) * 1000) * 1_000_000}


def message(
    body: Any = b"m0", topic: str = "$topic", user: Mapping[str, str] | None = None, **system: Any
) -> dict[str, Any]:
    """A message whose id is its body."""
    name = body.decode("ascii", "replace")[:32] if isinstance(body, bytes) else "id"
    properties = {"message_id": name, "message_type": "NORMAL", "body_encoding": "IDENTITY"} | system
    return topic_of(topic) | {"body": body, "user_properties": user or {}, "system_properties": properties}


# Steps -----------------------------------------------------------------------------------------------------------


def send(*messages: Mapping[str, Any], **more: Any) -> Ask:
    return Ask("SendMessage", {"messages": list(messages)}, **more)


def sends(*bodies: str, key: str = "k") -> list[Step]:
    """Messages in order, each in a request of its own, whose answers are not compared."""
    return [send(message(body.encode(), message_group=key), seen=False) for body in bodies]


def simple(client: str = "c1") -> Tell:
    """The client is a simple consumer."""
    subscription = group_of() | {"subscriptions": [topic_of() | {"expression": {"expression": "*"}}]}
    return Tell({"client_type": "SIMPLE_CONSUMER", "subscription": subscription}, client, seen=False)


def push(client: str = "c1") -> Tell:
    """The client is a push consumer."""
    return simple(client)._replace(settings=simple().settings | {"client_type": "PUSH_CONSUMER"})


_TAG: Final = {"type": "TAG", "expression": "*"}


def _ask(method: str, fields: Mapping[str, Any], more: Mapping[str, Any]) -> Ask:
    """`more`: fields of the request and options of `Ask` alike. They replace the usual ones, None takes one away."""
    options = {name: value for name, value in more.items() if name in Ask._fields}
    filled = {name: value for name, value in {**fields, **more}.items() if name not in options and value is not None}
    return Ask(method, filled, **options)


def receive(batch: int = 32, *, invisible_s: float = 10, poll_s: float = 5, **more: Any) -> Ask:
    fields = group_of() | {"message_queue": topic_of(), "filter_expression": _TAG, "batch_size": batch}
    fields |= {"invisible_duration": span(invisible_s), "long_polling_timeout": span(poll_s)}
    return _ask("ReceiveMessage", fields, more)


def polled(batch: int = 32, **more: Any) -> Ask:
    """A receive that waits for long, and whose time is compared."""
    return receive(batch, **{"poll_s": 20, "timed": True} | more)


def entry(of: str) -> dict[str, Any]:
    """`of`: a body, or `body,number`: which of its deliveries."""
    return {"message_id": of.partition(",")[0], "receipt_handle": f"$handle({of})"}


def ack(*of: str, **options: Any) -> Ask:
    return Ask("AckMessage", group_of() | topic_of() | {"entries": [entry(one) for one in of]}, **options)


def change(of: str, invisible_s: float, **more: Any) -> Ask:
    fields = group_of() | topic_of() | entry(of) | {"invisible_duration": span(invisible_s)}
    return _ask("ChangeInvisibleDuration", fields, more)


def forward(of: str, attempt: int = 1, attempts_max: int = 16) -> Ask:
    counts = {"delivery_attempt": attempt, "max_delivery_attempts": attempts_max}
    return Ask("ForwardMessageToDeadLetterQueue", group_of() | topic_of() | entry(of) | counts)
