"""Attacks on the frame reader: unfinished and slow frames, many connections, huge headers and bodies."""

import asyncio
import json
import struct

import msgpack

from lockstep.protocol.codes import FRAME_BYTES_MAX, RequestCode, SerializeType
from lockstep.testing.peer import CLOSED, Peer, frame, json_request
from scripts.hostile.run import Attack
from scripts.hostile.target import Target

__all__ = ["FRAME_ATTACKS"]

MIB = 1024 * 1024
UNFINISHED, UNFINISHED_BYTES = 80, 15 * MIB
SLOW, SLOW_SECONDS, SLOW_DEADLINE_MS = 200, 12.0, 5000
CONNECTIONS = 6000
CONNECTIONS_OF_ONE = 3000
REQUESTS = 100_000
OTHER_HOST = "127.0.0.2"
HUGE = 15 * MIB
_GROUP_OF_LOCK = b'{"consumerGroup":"g","clientId":"c","mqSet":['


async def unfinished_frames(target: Target) -> str:
    async def one() -> bool:
        peer = await target.connect()
        head = struct.pack(">II", FRAME_BYTES_MAX, 100)
        if not await peer.send(head):
            return False
        piece = bytes(256 * 1024)
        for _ in range(UNFINISHED_BYTES // len(piece)):
            if not await peer.send(piece):
                return False
        return True

    kept = await asyncio.gather(*(one() for _ in range(UNFINISHED)))
    await asyncio.sleep(2)
    return f"{sum(kept)} of {UNFINISHED} were taken whole"


async def slow_frames(target: Target) -> str:
    """A byte now and then, so that a connection is never idle."""
    peers = [await target.connect() for _ in range(SLOW)]
    for peer in peers:
        await peer.send(struct.pack(">II", 100_000, 100))
    open_still = SLOW
    for _ in range(int(SLOW_SECONDS)):
        await asyncio.sleep(1)
        open_still = sum([await peer.send(b"x") for peer in peers])
    return f"{open_still} of {SLOW} are open after {SLOW_SECONDS:.0f} s"


async def connections_of_an_address(target: Target) -> str:
    """From another address than the probe's, which has the limit too."""
    peers = [await target.connect(host=OTHER_HOST) for _ in range(CONNECTIONS_OF_ONE)]
    outcomes = [await peer.outcome(json_request(9999)) for peer in peers]
    return f"{sum(outcome != CLOSED for outcome in outcomes)} of {CONNECTIONS_OF_ONE:,} are served"


async def requests_without_end(target: Target) -> str:
    """As many as one connection can send, from another address than the probe's."""
    peer = await target.connect(host=OTHER_HOST)
    return str(await peer.ask_all((json_request(9999) for _ in range(REQUESTS)), 1000))


async def many_connections(target: Target) -> str:
    refused = 0
    peers: list[Peer] = []
    for _ in range(CONNECTIONS):
        try:
            peers.append(await target.connect())
        except OSError:
            refused += 1
            break
    request = json_request(RequestCode.GET_MAX_OFFSET, {"topic": "probe", "queueId": 0})
    outcomes = await asyncio.gather(*(peer.outcome(request) for peer in peers))
    return f"{sum(outcome != CLOSED for outcome in outcomes)} of {CONNECTIONS} are served"


async def json_header(target: Target) -> str:
    fields = ",".join(f'"k{number}":"v"' for number in range(HUGE // 14))
    header = b'{"code":30,"flag":0,"language":"JAVA","opaque":7,"version":401,"extFields":{%s}}' % fields.encode()
    return await target.ask(frame(SerializeType.JSON, header))


async def binary_header(target: Target) -> str:
    entry = struct.pack(">h1si1s", 1, b"k", 1, b"v")
    entries = entry * (HUGE // len(entry))
    header = struct.pack(">hBhiii", 30, 0, 401, 7, 0, 0) + struct.pack(">i", len(entries)) + entries
    return await target.ask(frame(SerializeType.ROCKETMQ, header))


async def msgpack_header(target: Target) -> str:
    count = HUGE // 4
    fields = b"\xde" + struct.pack(">H", 0)
    ext = b"\xdf" + struct.pack(">I", count) + b"".join(msgpack.packb(f"{n:x}") + b"\xc0" for n in range(count))
    parts = b"".join(map(msgpack.packb, (30, 0, 7, 401, None)))
    return await target.ask(frame(SerializeType.MSGPACK, (b"\x97" + parts + b"\xc0" + ext)[:HUGE] or fields))


async def headers_in_a_row(target: Target) -> str:
    """200 headers of the largest size at once: as many as one read may bring."""
    fields = ",".join(f'"k{number}":"v"' for number in range(60_000 // 14))
    header = b'{"code":30,"flag":0,"language":"JAVA","opaque":7,"version":401,"extFields":{%s}}' % fields.encode()
    peer = await target.connect()
    return str(await peer.ask_all([frame(SerializeType.JSON, header)] * 400, window=200))


async def _body(target: Target, code: int, body: bytes) -> str:
    return await target.ask(json_request(code, {}, body))


async def flat_body(target: Target) -> str:
    return await _body(target, RequestCode.LOCK_BATCH_MQ, _GROUP_OF_LOCK + b"0," * (HUGE // 2) + b"0]}")


async def lists_body(target: Target) -> str:
    """A body of the largest size with the content that is slowest to read."""
    body = _GROUP_OF_LOCK + b"[]," * ((MIB - 100) // 3) + b"[]]}"
    return await _body(target, RequestCode.LOCK_BATCH_MQ, body)


async def short_lenient_bodies(target: Target) -> str:
    """50 bodies in a row, each of the largest size that the slow JSON reader takes."""
    body = _GROUP_OF_LOCK + b"{a:1}," * (32_000 // 6) + b"]}"
    peer = await target.connect()
    return str(await peer.ask_all([json_request(RequestCode.LOCK_BATCH_MQ, {}, body)] * 50, window=50))


async def lenient_body(target: Target) -> str:
    """JSON that only the slower reader accepts."""
    return await _body(target, RequestCode.LOCK_BATCH_MQ, _GROUP_OF_LOCK + b"{a:1}," * (HUGE // 6) + b"]}")


async def references_body(target: Target) -> str:
    names = b'{"$ref":"$.a"},' * (HUGE // 15)
    return await _body(target, RequestCode.HEART_BEAT, b'{"a":1,"consumerDataSet":[' + names + b"]}")


async def long_paths_body(target: Target) -> str:
    """References that are paths through a deep body."""
    depth = 150
    deep = b'{"a":' * depth + b"{}" + b"}" * depth
    name = b'{"$ref":"$.d' + b".a" * depth + b'"},'
    body = b'{"d":' + deep + b',"consumerDataSet":[' + name * (MIB // len(name)) + b"]}"
    return await _body(target, RequestCode.HEART_BEAT, body[: FRAME_BYTES_MAX - MIB])


async def nested_body(target: Target) -> str:
    return await _body(target, RequestCode.HEART_BEAT, b'{"a":' * (HUGE // 5))


async def long_properties(target: Target) -> str:
    """Properties of a message, which are in the header of a send."""
    properties = "".join(f"k{number}\x01v\x02" for number in range(HUGE // 10))
    fields = {
        "producerGroup": "p", "topic": "probe", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "properties": properties, "reconsumeTimes": 0,
    }  # fmt: skip
    header = {"code": 10, "flag": 0, "language": "JAVA", "opaque": 7, "version": 401, "extFields": fields}
    data = json.dumps(header, ensure_ascii=False).encode()
    return await target.ask(frame(SerializeType.JSON, data, b"body"))


async def batch_of_empty_messages(target: Target) -> str:
    """One SEND_BATCH_MESSAGE with as many messages as its body can hold."""
    record = struct.pack(">iiiii", 22, 0, 0, 0, 0) + struct.pack(">h", 0)
    fields = {
        "a": "p", "b": "probe", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0, "i": "", "j": 0, "k": False,
        "l": 0, "m": "true",
    }  # fmt: skip
    return await target.ask(json_request(RequestCode.SEND_BATCH_MESSAGE, fields, record * (4 * MIB // len(record))))


FRAME_ATTACKS = (
    Attack("unfinished-frames", 13, f"{UNFINISHED} connections, each {UNFINISHED_BYTES // MIB} MiB of an endless frame",
           unfinished_frames, 60.0, ("--memory-limit", "256MiB")),
    Attack("slow-frames", 13, f"{SLOW} connections, a byte of a frame each second (deadline {SLOW_DEADLINE_MS} ms)",
           slow_frames, 60.0, ("-D", f"frame_timeout_ms={SLOW_DEADLINE_MS}")),
    Attack("connections-of-an-address", 13, f"{CONNECTIONS_OF_ONE:,} connections from an address that may have 100",
           connections_of_an_address, 60.0, ("-D", "connections_per_peer_max=100")),
    Attack("requests-without-end", 13, f"{REQUESTS:,} requests from an address that may send 1,000 a second",
           requests_without_end, 60.0, ("-D", "requests_per_second_max=1000")),
    Attack("many-connections", 13, f"{CONNECTIONS:,} connections, a request each", many_connections, 60.0),
    Attack("header-json", 15, "a JSON header of 15 MiB", json_header),
    Attack("header-binary", 15, "a binary header of 15 MiB", binary_header),
    Attack("header-msgpack", 15, "a msgpack header of 15 MiB", msgpack_header),
    Attack("header-properties", 15, "a send with properties of 15 MiB", long_properties),
    Attack("headers-in-a-row", 15, "400 JSON headers of 60 kB, 200 at once", headers_in_a_row, 60.0),
    Attack("body-flat", 15, "a lock request of 15 MiB of numbers", flat_body),
    Attack("body-lenient", 15, "a lock request of 15 MiB in fastjson's dialect", lenient_body, 60.0),
    Attack("body-lists", 15, "a lock request of 1 MiB of empty lists", lists_body),
    Attack("bodies-lenient", 15, "50 lock requests of 32 kB in fastjson's dialect", short_lenient_bodies, 60.0),
    Attack("body-references", 15, "a heartbeat of 15 MiB of references", references_body, 60.0),
    Attack("body-long-paths", 15, "a heartbeat of 1 MiB of references of 150 steps", long_paths_body),
    Attack("body-nested", 15, "a heartbeat nested 3,000,000 deep", nested_body),
    Attack("batch-of-empty", 15, "a batch of 190,000 empty messages", batch_of_empty_messages),
)  # fmt: skip
