"""What the command and its brokers tell each other: lines of JSON over the pipes of stdin and stdout."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from lockstep.protocol.bodies.broker import TopicConfig

__all__ = ["Lines", "Said", "decode_said", "encode_said"]


class Said(NamedTuple):
    """One line. Empty fields are left out.

    Args:
        listening: From a broker: its addresses by name, "broker" and "metrics"; it serves now.
        topics: From a broker: those that it has now, new or changed. To a broker: those to create if they are absent.
        deleted: From a broker: topics that it has no longer.
        sent_to: From a broker: a send created this topic, which is not registered before the answer.
        spread: To a broker: all brokers know a topic that a send to it created.
    """

    listening: dict[str, str] = {}  # noqa: RUF012 - never changed
    topics: tuple[TopicConfig, ...] = ()
    deleted: tuple[str, ...] = ()
    sent_to: TopicConfig | None = None
    spread: bool = False


def encode_said(said: Said) -> bytes:
    wire: dict[str, Any] = {}
    if said.listening:
        wire["listening"] = said.listening
    if said.topics:
        wire["topics"] = [config.to_wire() for config in said.topics]
    if said.deleted:
        wire["deleted"] = said.deleted
    if said.sent_to is not None:
        wire["sentTo"] = said.sent_to.to_wire()
    if said.spread:
        wire["spread"] = True
    return json.dumps(wire).encode() + b"\n"


def decode_said(line: bytes) -> Said:
    wire = json.loads(line)
    sent_to = wire.get("sentTo")
    return Said(
        wire.get("listening", {}),
        tuple(map(TopicConfig.from_wire, wire.get("topics", ()))),
        tuple(wire.get("deleted", ())),
        None if sent_to is None else TopicConfig.from_wire(sent_to),
        bool(wire.get("spread")),
    )


class Lines:
    """Cuts what arrives into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The lines that are whole now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
