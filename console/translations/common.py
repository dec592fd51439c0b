"""Texts of all pages: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "nav.order": ("Order", "顺序"),
    "nav.groups": ("Groups", "消费组"),
    "nav.topics": ("Topics", "主题"),
    "nav.messages": ("Messages", "消息"),
    "nav.brokers": ("Brokers", "Broker"),
    "nav.doctor": ("Doctor", "诊断"),
    "nav.pages": ("Pages", "页面"),
    "nav.skip": ("Skip to the content", "跳到正文"),
    "nav.language": ("Language", "语言"),
    "state.live": ("live", "实时"),
    "state.cut": ("The console does not answer; trying again", "控制台没有应答，正在重试"),
    "state.looking": ("Looking for brokers …", "正在寻找 Broker …"),
    "state.no_broker": (
        "No broker answers yet. The name server is {name_server}.",
        "还没有 Broker 应答。名字服务器是 {name_server}。",
    ),
    "state.gone": (
        "Broker {name} has not answered since {time} UTC: {error}",
        "Broker {name} 从 {time}（UTC）起没有应答：{error}",
    ),
    "state.left_out": (
        "Broker {name} is left out: {why}. What it has is missing here.",
        "未包含 Broker {name}：{why}。这里缺少它的内容。",
    ),
    "state.missing": ("What broker {name} has is missing here.", "这里缺少 Broker {name} 的内容。"),
    "state.groups_unnamed": (
        "{name} did not say which consumer groups it has: {error}. Groups that only it has are not up to date.",
        "{name} 没有说明它有哪些消费组：{error}。仅它拥有的消费组不是最新状态。",
    ),
    "state.limit": ("The last time was {time} UTC.", "最近一次：{time}（UTC）。"),
    "limit.answers": (
        "An answer was too long, so what it says is not shown: {peer}.",
        "有一个应答过长，其内容未显示：{peer}。",
    ),
    "limit.brokers": (
        "There are more brokers than the console watches ({maximum}).",
        "Broker 的数量超过控制台观察的上限（{maximum}）。",
    ),
    "limit.groups": (
        "There are more consumer groups than the console keeps ({maximum}).",
        "消费组的数量超过控制台保留的上限（{maximum}）。",
    ),
    "limit.history": (
        "Owners change so often that some ribbons begin later ({maximum} entries are kept).",
        "持有者变化过于频繁，部分色带的起点较晚（保留 {maximum} 条）。",
    ),
    "limit.names": (
        "Names of more than {maximum} characters are left out; they came from {peer}.",
        "超过 {maximum} 个字符的名称已被略去，来自 {peer}。",
    ),
    "limit.queues": (
        "There are more locked queues than the console keeps ({maximum}).",
        "加锁队列的数量超过控制台保留的上限（{maximum}）。",
    ),
    "limit.readings": (
        "What brokers say of {peer} is not kept whole: all groups together take {maximum} bytes at most.",
        "Broker 关于 {peer} 的应答未完整保留：所有消费组合计最多 {maximum} 字节。",
    ),
    "state.utc": ("All times are UTC.", "所有时间均为 UTC。"),
    "error.title": ("This page cannot be shown", "无法显示此页"),
    "error.not_found": ("There is no such page.", "没有这个页面。"),
    "error.refused": ("The request was refused.", "请求被拒绝。"),
    "error.bad_name": ("A name in the address is not allowed.", "地址中的名称不合法。"),
    "error.no_answer": ("The brokers gave no answer.", "Broker 没有给出应答。"),
    "error.not_lockstep": (
        "This broker has no such request: it is RocketMQ's, and only Lockstep's brokers have it.",
        "此 Broker 没有这个请求：它是 RocketMQ 的 Broker，只有 Lockstep 的 Broker 才有。",
    ),
    "error.back": ("To the first page", "回到首页"),
    "table.none": ("none", "无"),
    "table.all": ("all", "全部"),
    "table.filter": ("Show", "显示"),
    "table.name_has": ("Name contains", "名称包含"),
    "table.rows": ("{first} to {last} of {count}", "第 {first} 至 {last} 行，共 {count} 行"),
    "table.previous": ("Previous", "上一页"),
    "table.next": ("Next", "下一页"),
    "word.group": ("Group", "消费组"),
    "word.topic": ("Topic", "主题"),
    "word.queue": ("Queue", "队列"),
    "word.broker": ("Broker", "Broker"),
    "word.owner": ("Owner", "持有者"),
    "word.lag": ("Lag", "积压"),
    "word.time": ("Time", "时间"),
    "word.unknown": ("unknown", "未知"),
    "word.yes": ("yes", "是"),
    "word.no": ("no", "否"),
}
