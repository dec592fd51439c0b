"""Texts of the pages of groups: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "groups.caption": ("Consumer groups", "消费组"),
    "groups.none": ("No consumer group yet", "还没有消费组"),
    "groups.none_match": ("No consumer group has such a name", "没有名称匹配的消费组"),
    "groups.none_why": (
        "A group is listed when a member is online, or when it has stored offsets.",
        "有成员在线，或已存有位点的消费组才会列出。",
    ),
    "groups.unknown": (
        "The brokers do not know this group, or it has not been read yet. This page looks again by itself.",
        "Broker 不知道这个消费组，或者还没有读到它。本页会自动重试。",
    ),
    "groups.members": ("Members", "成员"),
    "groups.in_order": ("In order", "顺序消费"),
    "groups.order.orderly": ("yes", "是"),
    "groups.order.concurrent": ("no, concurrent", "否，并发"),
    "groups.order.mixed": ("mixed", "混合"),
    "groups.order.pull": ("pulls itself", "自行拉取"),
    "groups.order.offline": ("offline", "离线"),
    "groups.order.unknown": ("unknown", "未知"),
    "groups.mixed": (
        "Orderly and concurrent members are in one group. Concurrent members take no locks: order will break.",
        "同一消费组里既有顺序成员也有并发成员。并发成员不加锁，顺序会被破坏。",
    ),
    "groups.retries": ("Retries waiting", "等待重试"),
    "groups.dead_letters": ("Dead letters", "死信"),
    "groups.tps": ("Pulled a second", "每秒拉取"),
    "groups.read_at": ("Read at {time}.", "读取于 {time}。"),
    "groups.examine": ("Let the doctor look at this group", "诊断此消费组"),
    "groups.lag_over_time": ("Lag over time", "积压变化"),
    "groups.lag_text": (
        "Messages behind in the last {minutes} min: {newest} at the last point, {largest} at most.",
        "最近 {minutes} 分钟的积压：最后一点 {newest}，最多 {largest}。",
    ),
    "groups.lag_soon": ("The first points come within 20 seconds.", "20 秒内会有最初的数据点。"),
    "groups.client_id": ("Client id", "客户端 ID"),
    "groups.address": ("Address", "地址"),
    "groups.language": ("Language", "语言"),
    "groups.strategy": ("Strategy", "分配策略"),
    "groups.share": ("Queues", "队列数"),
    "groups.handled": ("Handled a second", "每秒处理"),
    "groups.failed": ("Failed a second", "每秒失败"),
    "groups.since": ("Started", "启动于"),
    "groups.no_members": ("No member of this group is online.", "此消费组没有成员在线。"),
    "groups.queues": ("Queues", "队列"),
    "groups.no_queues": ("The group has no offsets and subscribes to no topic.", "此消费组没有位点，也没有订阅主题。"),
    "groups.committed": ("Committed", "已提交"),
    "groups.end": ("End", "末尾"),
    "groups.last": ("Last consumed message", "最近消费的消息"),
    "groups.why": ("Why this share", "为何如此分配"),
    "groups.share_of": ("{strategy} of {count} members; share: {share}", "{strategy}，{count} 个成员；份额：{share}"),
    "groups.deliveries": ("Deliveries that are not acknowledged: {count}", "未确认的投递：{count}"),
    "groups.offset": ("Offset", "位点"),
    "groups.holder": ("Held by", "持有者"),
    "groups.popped": ("Delivered", "投递于"),
    "groups.visible": ("Others wait", "其他成员"),
    "groups.held": ("until {time}, {left} more", "等到 {time}，还有 {left}"),
    "groups.free": ("no more: it comes again", "不再等待：消息会再次投递"),
    "groups.attempt": ("Attempt", "第几次"),
    "groups.no_deliveries": ("All deliveries are acknowledged.", "所有投递都已确认。"),
    "groups.answers": (
        "Answers that came too late: {late}; that were refused: {stale}. Messages stored again: {revived}.",
        "过晚的应答：{late}；被拒绝的：{stale}。重新存储的消息：{revived}。",
    ),
    "groups.epoch": ("epoch {epoch}", "纪元 {epoch}"),
}
