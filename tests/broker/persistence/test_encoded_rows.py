"""The rows of a table that are encoded once: the file is that of a table that is encoded whole."""

import random

import pytest

from lockstep.broker.persistence.encoded_rows import EncodedRows
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.config import StoredTopics, TopicBegin, stored_topic
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import LocalProtocolError


def read(content: bytes) -> StoredTopics:
    return decode_body(StoredTopics, content, SerializeType.JSON)


def test_a_file_after_any_changes_has_the_rows_of_the_table() -> None:
    """Topics come, change, go and come again, several between two writes. The first write has none."""
    rng, rows = random.Random(28), EncodedRows("topicConfigTable")
    topics: dict[str, TopicConfig] = {}
    begins: dict[str, TopicBegin] = {}
    assert read(rows.encode(DataVersion(0, 0), {})).topics == ()
    for counter in range(1, 300):
        names = [f"T{rng.randrange(8)}\u00e4" for _ in range(rng.randrange(4))]
        for name in names:
            if name in topics and rng.random() < 0.5:
                del topics[name]
                begins.pop(name, None)
            else:
                topics[name] = TopicConfig(name, rng.randrange(8), 4)
                begins.update({name: TopicBegin(counter, counter)} if rng.random() < 0.5 else {})
        changes = {name: stored_topic(topics[name], begins.get(name)) if name in topics else None for name in names}
        version = DataVersion(counter, counter)
        in_order = tuple(topics[name] for name in sorted(topics))
        assert read(rows.encode(version, changes)) == StoredTopics(version, in_order, begins)


def test_a_row_that_cannot_be_encoded_hides_no_later_one() -> None:
    """The writer tries again without the changes that it had given before; the bad row has gone then."""
    rows, version = EncodedRows("topicConfigTable"), DataVersion(1, 1)
    rows.encode(version, {"Gone": TopicConfig("Gone", 1, 1).to_wire()})
    bad = {name: TopicConfig(name, 1, 1).to_wire() for name in ("A", "\ud800", "B")}
    with pytest.raises(LocalProtocolError):
        rows.encode(version, {"Gone": None, **bad})
    with pytest.raises(LocalProtocolError):
        rows.encode(version, {})
    assert [topic.topic_name for topic in read(rows.encode(version, {"\ud800": None})).topics] == ["A", "B"]
