"""Recorded messages, single and in batches, taken apart and put together again."""

import struct
import zlib

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.messages.batch import decode_batch, encode_batch
from lockstep.protocol.messages.message import Record, decode_messages, encode_stored_message
from lockstep.protocol.messages.properties import decode_properties
from tests.protocol.recorded import ADMIN, CPP, GO, JAVA, JAVA_BINARY, NODE, each_file, group_of, recorded_in

R = RequestCode
MESSAGES = {CPP: 4, GO: 9, JAVA: 8, JAVA_BINARY: 8, ADMIN: 3, NODE: 4}


def _record_parts(record: bytes) -> tuple[bytes, bytes, bytes]:
    """Body as stored, topic and property string of an IPv4 record, read by the layout of wire.md 5."""
    (body_bytes,) = struct.unpack_from(">i", record, 84)
    body_end = 88 + body_bytes
    topic_end = body_end + 1 + record[body_end]
    return record[88:body_end], record[body_end + 1 : topic_end], record[topic_end + 2 :]


@each_file
def test_stored_messages_are_reproduced_to_the_byte(file: str) -> None:
    """A record pulled or found by its key, taken apart and put together again, has the bytes and the CRC it came with.

    All recorded hosts are IPv4; test_message has the others.
    A broker stores WAIT twice for batched messages, so the property string is passed through, not rebuilt.
    """
    seen = 0
    for recorded in recorded_in(file):
        if recorded.direction != "reply" or recorded.request_code not in (R.PULL_MESSAGE, R.QUERY_MESSAGE):
            continue
        blob, position = recorded.command.body, 0
        for message in decode_messages(blob, "broker-a"):
            record = blob[position : position + message.stored_bytes]
            position += message.stored_bytes
            body, topic, properties = _record_parts(record)
            new = Record(
                topic=message.topic,
                queue_id=message.queue_id,
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host[0],
                born_port=message.born_host[1],
                store_timestamp=message.store_timestamp,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
                body=body,
                properties=properties,
                tags_code=0,
            )
            place = (message.queue_offset, message.commit_log_offset, *message.store_host)
            assert record == encode_stored_message(new, topic, *place)
            assert message.body_crc == zlib.crc32(body) & 0x7FFFFFFF
            assert message.body == (zlib.decompress(body) if message.sys_flag & 1 else body)
            assert message.topic == topic.decode()
            assert message.properties == decode_properties(properties.decode())
            seen += 1
        assert position == len(blob)
    assert seen == MESSAGES[file]


def test_the_batch_is_reproduced_to_the_byte() -> None:
    """The body of SEND_BATCH_MESSAGE, read and written again, is what Java sent."""
    (command,) = group_of(JAVA, R.SEND_BATCH_MESSAGE, "request")
    records = decode_batch(command.body)
    assert [record.body for record in records] == [b"b1", b"b2"]
    assert encode_batch(records) == command.body
