"""GET_BROKER_RUNTIME_INFO: RocketMQ's names with this broker's values (wire.md 2.6).

Values about RocketMQ's threads, pools and page cache are 0, because this broker has none of them.
"""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps
from lockstep.broker.messages.stats import Totals
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import PROTOCOL_VERSION, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.names import SCHEDULE_TOPIC

__all__ = ["runtime_info"]

_VERSION_TEXT: Final = "V4_9_8"
_NOT_HERE: Final = {
    **dict.fromkeys(
        (
            "EndTransactionQueueSize",
            "EndTransactionThreadPoolQueueCapacity",
            "dispatchBehindBytes",
            "dispatchMaxBuffer",
            "getMessageEntireTimeMax",
            "pageCacheLockTimeMills",
            "putMessageEntireTimeMax",
            "putMessageFailedTimes",
            "remainTransientStoreBufferNumbs",
            "startAcceptSendRequestTimeStamp",
            *(
                f"{pool}ThreadPoolQueue{fact}"
                for pool in ("pull", "query", "send")
                for fact in ("Capacity", "HeadWaitTimeMills", "Size")
            ),
        ),
        "0",
    ),
    "consumeQueueDiskRatio": "0.0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "putMessageDistributeTime": " ".join(
        f"{bucket}:0"
        for bucket in (
            "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]",
            "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
        )
    ),
    "remainHowManyDataToFlush": "0 B",
}  # fmt: skip
_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_KIB: Final = 1024
_NO_TIME: Final = -1


def runtime_info(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    def steps() -> AnswerSteps:
        totals = yield from broker.stats.count_in_steps()
        return _answer(broker, command, totals, now_ms)

    return answer_in_steps(broker, connection, command, steps())


def _answer(broker: Broker, command: RemotingCommand, totals: Totals, now_ms: int) -> RemotingCommand:
    table = {
        **_NOT_HERE,
        **_identity(broker, now_ms),
        **_store(broker),
        **_traffic(broker, totals, now_ms),
        **_delays(broker),
    }
    # From here on only here, not in RocketMQ.
    table |= broker.ownership.runtime_rows()
    if command.serialize_type == SerializeType.MSGPACK:
        # RocketMQ's own tools get RocketMQ's rows: a count of sends is no news for an operator.
        counts = broker.messages.plain_sends.items()
        table |= {f"plainSends.{outcome}": str(count) for outcome, count in counts if count}
    table |= {f"limits.{setting}": str(count) for setting, count in broker.limits.counts.items()}
    table |= {f"limitsMs.{setting}": str(last_ms) for setting, last_ms in broker.limits.last_ms.items()}
    return command.reply(ResponseCode.SUCCESS, body=encode_body(KvTable(table), command.serialize_type))


def _identity(broker: Broker, now_ms: int) -> dict[str, str]:
    return {
        "bootTimestamp": str(broker.stats.started_ms),
        "brokerVersion": str(PROTOCOL_VERSION),
        "brokerVersionDesc": _VERSION_TEXT,
        "runtime": _duration(now_ms - broker.stats.started_ms),
    }


def _store(broker: Broker) -> dict[str, str]:
    """For a store in memory, the memory limit takes the place of the disk size."""
    low, high = broker.messages.store.min_commit_log_offset, broker.messages.store.max_commit_log_offset
    earliest_ms = broker.messages.store.earliest_timestamp()
    total_bytes = broker.config.memory_limit_bytes
    free_bytes = max(0, total_bytes - (high - low))
    flushes = {}
    if broker.durable is not None:
        free_bytes, total_bytes = broker.durable.space()
        flushes = {"commitLogSyncCount": str(broker.durable.store.sync_count)}  # only here, not in RocketMQ
    return {
        **flushes,
        "commitLogDirCapacity": f"Total : {_size(total_bytes)}, Free : {_size(free_bytes)}.",
        "commitLogDiskRatio": str(1 - free_bytes / total_bytes),
        "commitLogMaxOffset": str(high),
        "commitLogMinOffset": str(low),
        "earliestMessageTimeStamp": str(_NO_TIME if earliest_ms is None else earliest_ms),
    }


def _traffic(broker: Broker, totals: Totals, now_ms: int) -> dict[str, str]:
    stats = broker.stats
    yesterday, today = stats.mornings()
    found, missed = stats.rates(now_ms, "found"), stats.rates(now_ms, "missed")
    return {
        "getFoundTps": _rates(*found),
        "getMissTps": _rates(*missed),
        "getTotalTps": _rates(*map(sum, zip(found, missed, strict=True))),
        "getTransferedTps": _rates(*stats.rates(now_ms, "got")),
        "msgGetTotalTodayMorning": str(today.got),
        "msgGetTotalTodayNow": str(totals.got),
        "msgGetTotalYesterdayMorning": str(yesterday.got),
        "msgPutTotalTodayMorning": str(today.put),
        "msgPutTotalTodayNow": str(totals.put),
        "msgPutTotalYesterdayMorning": str(yesterday.put),
        "putMessageAverageSize": str(totals.put_bytes / totals.put if totals.put else 0.0),
        "putMessageSizeTotal": str(totals.put_bytes),
        "putMessageTimesTotal": str(totals.put),
        "putTps": _rates(*stats.rates(now_ms, "put")),
    }


def _delays(broker: Broker) -> dict[str, str]:
    """For each delay level with messages: the next offset to deliver, and the end of its queue."""
    return {
        f"scheduleMessageOffset_{level}": f"{delivered},{broker.messages.store.max_offset(SCHEDULE_TOPIC, level - 1)}"
        for level, delivered in broker.messages.delays.offsets.items()
    }


def _rates(*rates: float) -> str:
    return " ".join(str(float(rate)) for rate in rates)


def _duration(passed_ms: int) -> str:
    minutes, seconds = divmod(passed_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count_bytes: float) -> str:
    for unit in _BYTE_UNITS[:-1]:
        if count_bytes < _KIB:
            return f"{count_bytes:.0f} B" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= _KIB
    return f"{count_bytes:.1f} {_BYTE_UNITS[-1]}"
