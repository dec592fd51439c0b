"""Texts of the pages that change something: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "actions.title": ("Changes", "更改"),
    "actions.release": ("Release …", "释放…"),
    "actions.reset_link": ("Reset the offsets of {topic} …", "重置 {topic} 的位点…"),
    "actions.reset": ("Reset offsets", "重置位点"),
    "actions.to": ("To", "到"),
    "actions.earliest": ("the first message", "最早的消息"),
    "actions.latest": ("the end: nothing that is stored", "末尾：不消费已存的消息"),
    "actions.time": ("a time", "指定时间"),
    "actions.at": ("Time (UTC)", "时间（UTC）"),
    "actions.force": (
        "Also forward, over messages that were not consumed",
        "也允许向前，跳过未消费的消息",
    ),
    "actions.look": ("Show what would change", "预览更改"),
    "actions.preview": ("Nothing is changed yet. These offsets would change:", "尚未更改。将更改以下位点："),
    "actions.nothing": (
        "No offset would change. Forward, over what was not consumed, needs the box above.",
        "不会更改任何位点。要向前跳过未消费的消息，请勾选上面的选项。",
    ),
    "actions.online": (
        "The group is online: the brokers tell its members, which begin there when their listeners have returned.",
        "消费组在线：Broker 会通知成员，成员在监听器返回后从那里开始。",
    ),
    "actions.offline": ("The group is offline: the offsets are stored.", "消费组离线：直接存储位点。"),
    "actions.confirm_reset": ("Reset {count} offsets of {group}", "重置 {group} 的 {count} 个位点"),
    "actions.done_notified": (
        "Done on {names}. The brokers told the members, which begin there when their listeners have returned.",
        "已在 {names} 完成。Broker 已通知成员，成员在监听器返回后从那里开始。",
    ),
    "actions.done_stored": ("Done on {names}. The offsets are stored.", "已在 {names} 完成。位点已存储。"),
    "actions.done_refused": ("Not done on {name}: {why}.", "{name} 上未完成：{why}。"),
    "actions.done_unknown": (
        "{name} did not answer within {seconds} s. It may still make the change when it goes on: look at it then.",
        "{name} 在 {seconds} 秒内没有应答。它恢复后仍可能执行此更改，届时请查看它的位点。",
    ),
    "actions.left_out": (
        "{count} queues of {name} are left out: {why}.",
        "略去了 {name} 的 {count} 个队列：{why}。",
    ),
    "actions.before": ("Before", "之前"),
    "actions.after": ("After", "之后"),
    "actions.moved": ("Moved by", "移动"),
    "actions.moves": ("Offsets", "位点"),
    "actions.back": ("Back to the group", "返回消费组"),
    "actions.cancel": ("Cancel", "取消"),
    "actions.release_title": ("Release the lock of {queue}", "释放 {queue} 的锁"),
    "actions.release_ask": (
        "{owner} has held this lock for {held}, under epoch {epoch}.",
        "{owner} 已持有此锁 {held}，纪元为 {epoch}。",
    ),
    "actions.release_so": (
        "The broker takes it away at once and gives the queue to the next member that asks.",
        "Broker 会立即收回此锁，并把队列交给下一个请求的成员。",
    ),
    "actions.release_risk": (
        "What the owner commits later is refused. A call that runs there goes on: its message may be handled twice.",
        "持有者之后的提交会被拒绝。正在运行的调用会继续，其消息可能被处理两次。",
    ),
    "actions.release_confirm": ("Release the lock", "释放锁"),
    "actions.release_done": ("The lock is released.", "锁已释放。"),
    "actions.release_next": ("{owner} has the queue now, under epoch {epoch}.", "现在由 {owner} 以纪元 {epoch} 持有。"),
    "actions.release_kept": ("The owner still has the lock.", "持有者仍持有此锁。"),
    "actions.release_free": ("No member has the lock of this queue now.", "现在没有成员持有此队列的锁。"),
    "actions.release_no_fence": (
        "This broker has no fenced locks: with a lock taken away there, two owners would work. It is not offered.",
        "此 Broker 没有 fenced 锁。强行收回会让两个持有者同时工作，所以不提供。",
    ),
}
