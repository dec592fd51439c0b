"""What a comparison leaves out, in one place with the reason: clocks, places in a log, sizes of a machine.

A masked value must still be there, and be of the same kind: a number, digits, text, absent.
"""

import re
from typing import Any, Final, NamedTuple

__all__ = ["MASKS", "Mask", "masked", "only_common"]


class Mask(NamedTuple):
    """`codes` empty: every code. `shape`: digits may differ, all else not. `common`: only where both have it."""

    path: str  # a regular expression for the whole path
    reason: str
    codes: tuple[int, ...] = ()
    shape: bool = False
    common: bool = False


CLOCK: Final = "a clock"
OF_SENDS: Final = "RocketMQ 5 adds properties to messages that are sent without them, and so bytes"
MASKS: Final = (
    Mask(r"(.*\.)?(born_timestamp|store_timestamp|storeTimestamp)", CLOCK),
    Mask(r".*(lastUpdateTimestamp|lastTimestamp|[tT]imeStamp|delayTime)", CLOCK),
    Mask(r".*TimeStampStr", "a clock; how it is written is compared", (303,), shape=True),
    Mask(r"body\.stats(Minute|Hour|Day)\.sum", "sampled every ten seconds of each broker's own clock", (315,)),
    Mask(
        r"body\.(namesrvAddr|listenPort|fileReservedTime|diskMaxUsedSpaceRatio|mappedFileSize\w+|rocketmqHome|.*[pP]ath.*)",
        "where a server was started, and what it keeps",
        (26, 319),
    ),
    Mask(r"body\.table\..*", "clocks, sizes, speeds and counts of one process; which there are is compared", (28,)),
    Mask(r"body\.table\.commitLogDiskRatio_.*", "the path of a file", (28,), common=True),
    Mask(r"pushes\[0\]\.ext\.timestamp", "the time that was asked for is that of a message", (222,)),
    Mask(r"body\..*", "settings say how a server is built; names that both have are compared", (26, 319), common=True),
    Mask(r".*dataVersion\.(timestamp|counter)", "a clock, and how often the broker changed its table"),
    Mask(r"ext\.(indexLastUpdateTimestamp|indexLastUpdatePhyoffset)", "a clock and a place in the log", (12,)),
    Mask(r"ext\.timestamp", CLOCK, (32,)),
    Mask(r"(.*\.)?commit_log_offset", "a place in the log: each broker writes messages of its own beside ours"),
    Mask(r".*physicOffset", "a place in the log"),
    Mask(r"ext\.version", "clock and counter of a table", (26,)),
    Mask(r"(body|ext)\.(timestamp|counter)", "clock and counter of a table", (322,)),
    Mask(r"(.*\.)?properties\.(ARRIVE_TIME|PUSH_REPLY_TIME)", CLOCK),
    Mask(
        r"body\.topicConfigTable\..*\.order",
        "a broker copies order configurations from name servers each 30 s of its own clock",
        (21,),
    ),
    Mask(r".*(consumeTps|tps|avgpt)", "speed"),
    Mask(r"body\[\d+\]\.properties\.(MSG_REGION|TRACE_ON|UNIQ_KEY)", OF_SENDS, (361, 200050, 200052), common=True),
    Mask(r"body\[\d+\]\.stored_bytes", OF_SENDS, (361, 200050, 200052)),
    Mask(r"ext\.recallHandle", CLOCK, shape=True),
    Mask(r"ext\.transactionId", "RocketMQ 5 answers it to every send", (10,), common=True),
    Mask(r"ext\.popTime|.*properties\.(1ST_POP_TIME|POP_CK)", CLOCK, (200050, 200053), shape=True),
    Mask(r"ext\.invisibleTime", "counted from the pop, so a difference of clocks", (200053,)),
    Mask(r"ext\.reviveQid", "each broker takes its revive queues in turn", (200050, 200053), shape=True),
)  # fmt: skip


def masked(code: int, path: str, value: Any) -> Any:
    """The value, or its kind where a mask covers the path."""
    for mask in MASKS:
        if (not mask.codes or code in mask.codes) and re.fullmatch(mask.path, path) and not mask.common:
            return re.sub(r"\d", "9", value) if mask.shape and isinstance(value, str) else _kind(value)
    return value


def only_common(code: int, path: str) -> bool:
    """Whether a path that one of the two lacks is no difference."""
    return any(mask.common and code in mask.codes and re.fullmatch(mask.path, path) for mask in MASKS)


def _kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "<number>"
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return "<digits>"
    return f"<{type(value).__name__}>"
