"""Values of header fields and bodies: names of the world that is attacked, and numbers at their bounds."""

import random
from typing import Any, Final

__all__ = ["HIDDEN", "OPEN_GROUP", "OPEN_TOPIC", "PROTECTED_GROUPS", "PROTECTED_TOPICS", "Words"]

OPEN_TOPIC, OPEN_GROUP = "open", "open-group"
PROTECTED_TOPICS: Final = ("secret", "null", "true", "12345")  # names that a careless reader of a field could make
PROTECTED_GROUPS: Final = ("secret-group", "null", "12345")
HIDDEN: Final = "hidden-92f1c7"  # in names and bodies that no peer without rights knows: in no answer to it

_TOPICS: Final = (
    OPEN_TOPIC, OPEN_TOPIC, OPEN_TOPIC, OPEN_TOPIC, *PROTECTED_TOPICS, "secret", "secret", "TBW102", "SELF_TEST_TOPIC",
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
    "OFFSET_MOVED_EVENT", "BenchmarkTest", "%RETRY%open-group", "%RETRY%secret-group", "%DLQ%open-group",
    "%DLQ%secret-group", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "broker-a", "", "t" * 127, "t" * 128,
    "a b", "ä", "open\n", "OPEN", "%RETRY%", "SELF", "\u202eopen", "TopicO", "TopicJ",
)  # fmt: skip
_GROUPS: Final = (
    OPEN_GROUP, OPEN_GROUP, OPEN_GROUP, OPEN_GROUP, *PROTECTED_GROUPS, "secret-group", "secret-group", "TOOLS_CONSUMER",
    "CLIENT_INNER_PRODUCER", "DEFAULT_PRODUCER", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS", "%RETRY%open-group", "",
    "g" * 120, "g" * 255, "g" * 256, "a b", "ö", "g\x00", "SELF_TEST_C_GROUP", "FILTERSRV_CONSUMER",
)  # fmt: skip
_CLIENTS: Final = ("client-1", "client-2", "owner@1", "10.0.0.9@4711", "", "c" * 300, "\x1b[31m", "ü@1")
_TEXTS: Final = (
    "", "*", "a", "a || b", "||", "null", "true", "false", "0", "-1", "1", "9223372036854775807", "9223372036854775808",
    "TAG", "SQL92", "CLASS", "a > 5", "a BETWEEN 1 AND 'x'", "((((((((((a))))))))))", "a IN ('b'" + ", 'c'" * 40 + ")",
    "KEYS\x01k\x02", "TAGS\x01a\x02WAIT\x01true\x02", "KEYS\x01k1 k2\x02UNIQ_KEY\x01u1\x02DELAY\x011\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01open-group\x02", "__SHARDINGKEY\x01s\x02", "\x01\x02\x01\x02", "DELAY\x0199\x02",
    "%", "\x00", "\ud800", "\U0001f980", "1=PUB|SUB", "open=PUB,secret=SUB", "*.*.*.*", "10.0.0.{1,2}", "DENY", "-",
    "x" * 500,
    "REAL_TOPIC\x01secret\x02REAL_QID\x010\x02", "RETRY_TOPIC\x01secret\x02", "a%20b", "127.0.0.1:10911",
    "DefaultCluster",
    "CLUSTER\x01DefaultCluster\x02REPLY_TO_CLIENT\x01owner@1\x02CORRELATION_ID\x01c\x02", "broker-a", "1024B",
)  # fmt: skip
_NUMBERS: Final = (
    0, 0, 0, 0, 1, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 32, 64, 127, 128, 255, 256, 1000, 4096, 16383, 16384, 16385, 32767,
    32768,
    65535, 2**31 - 2, 2**31 - 1, -1, -1, -2, -7, -(2**31),
)  # fmt: skip
_LARGE: Final = (2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), -(2**31) - 1, 1_700_000_000_000, 1_700_000_060_000)
_WRONG: Final[tuple[Any, ...]] = (
    2**63, -(2**63) - 1, 2**64, 10**30, 1.5, -0.0, 1e300, True, False, None, "", " 1", "1 ", "+1", "-0", "007", "1_0",
    "0x1",
    "1e3", "\u0661", "9" * 5000, "Infinity", [], {}, [1], {"a": 1}, "x" * 3000,
)  # fmt: skip
_SYS_FLAGS: Final = (0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 0x100, 0x107, 0x300, 0x700, 0x701)
_ADDRESSES: Final = ("127.0.0.1:10911", "10.0.0.1:1", "[::1]:2", "", "x", "127.0.0.1:99999", "a" * 100)


class Words:
    """Draws values. `offsets`, `message_ids`, `half` and `uniq` are those of messages that are stored.

    Args:
        rng: Draws.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.offsets: list[int] = [0]
        self.message_ids: list[str] = ["7F00000100002A9F0000000000000000"]
        self.addresses: list[str] = list(_ADDRESSES)

    def topic(self) -> str:
        random_ = self.rng.random
        return f"t-{int(random_() * 3000)}" if random_() < 0.1 else _TOPICS[int(random_() * len(_TOPICS))]

    def group(self) -> str:
        random_ = self.rng.random
        return f"g-{int(random_() * 3000)}" if random_() < 0.1 else _GROUPS[int(random_() * len(_GROUPS))]

    def client(self) -> str:
        random_ = self.rng.random
        return f"c-{int(random_() * 3000)}" if random_() < 0.1 else _CLIENTS[int(random_() * len(_CLIENTS))]

    def text(self) -> str:
        return _TEXTS[int(self.rng.random() * len(_TEXTS))]

    def number(self, bits: int = 64) -> int:
        random_ = self.rng.random
        if bits == 64 and random_() < 0.2:
            return _LARGE[int(random_() * len(_LARGE))]
        return _NUMBERS[int(random_() * len(_NUMBERS))]

    def small(self, below: int) -> int:
        return int(self.rng.random() * below)

    def wrong(self) -> Any:
        """A value that is out of range, of another type, or a number in a strange spelling."""
        return _WRONG[int(self.rng.random() * len(_WRONG))]

    def log_offset(self) -> int:
        """Of a stored message, or near it."""
        random_ = self.rng.random
        offset = self.offsets[int(random_() * len(self.offsets))]
        return offset if random_() < 0.7 else offset + self.number(32)

    def sys_flag(self) -> int:
        return _SYS_FLAGS[int(self.rng.random() * len(_SYS_FLAGS))]

    def address(self) -> str:
        return self.addresses[int(self.rng.random() * len(self.addresses))]

    def message_id(self) -> str:
        random_ = self.rng.random
        return self.message_ids[int(random_() * len(self.message_ids))] if random_() < 0.6 else self.text()
