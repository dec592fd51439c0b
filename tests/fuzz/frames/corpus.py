"""Frames of real clients, from tests/vectors: what they sent to brokers and name servers."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.protocol.command import decode_command
from lockstep.protocol.frame import FrameDecoder
from tests.fuzz.frames.loose import LANGUAGES, Loose
from tests.fuzz.frames.words import Words

__all__ = ["captured", "captured_bytes", "requests_of"]

_FOLDER = Path(__file__).parents[2] / "vectors"
_TOPICS = ("topic", "b", "originTopic")
_GROUPS = ("group", "a", "consumerGroup", "producerGroup")


@cache
def captured_bytes(link: str, direction: str = ">") -> tuple[bytes, ...]:
    """The whole frames that clients sent, each once.

    Args:
        link: "BR": to a broker, "NS": to a name server; "": to both.
        direction: ">"; "<": what servers sent.
    """
    found: dict[bytes, None] = {}
    for path in sorted(_FOLDER.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["dir"] == direction and entry["link"].startswith(link):
                found[bytes.fromhex(entry["hex"])] = None
    return tuple(found)


@cache
def requests_of(link: str, direction: str = ">") -> tuple[Loose, ...]:
    """The same frames in parts. Do not change them."""
    parts = []
    for data in captured_bytes(link, direction):
        decoder = FrameDecoder()
        decoder.feed(data)
        frame = decoder.next_frame()
        assert frame is not None
        command = decode_command(frame)
        language = LANGUAGES[command.language] if command.language < len(LANGUAGES) else "OTHER"
        fields: dict[Any, Any] = dict(command.ext_fields or {})
        parts.append(
            Loose(
                frame.serialize_type, command.code, fields, frame.body, flag=command.flag, opaque=command.opaque,
                version=command.version, language=language, remark=command.remark,
            )
        )  # fmt: skip
    return tuple(parts)


def captured(link: str, words: Words) -> Loose:
    """A recorded request; its topics and groups are often those of the world that is attacked."""
    frames = requests_of(link)
    loose = copy.copy(frames[words.small(len(frames))])
    loose.fields = dict(loose.fields)
    if words.small(3):
        loose.fields.update({name: words.topic() for name in _TOPICS if name in loose.fields})
        loose.fields.update({name: words.group() for name in _GROUPS if name in loose.fields})
    return loose
