"""Texts of the pages of topics: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "topics.none": ("No topic yet", "还没有主题"),
    "topics.none_match": ("No topic has such a name", "没有名称匹配的主题"),
    "topics.none_why": (
        "`lockstep topic create` makes one. Topics of brokers and groups are shown with the box above.",
        "用 `lockstep topic create` 创建。勾选上面的选项可显示 Broker 和消费组的主题。",
    ),
    "topics.all": ("Also those of brokers and groups", "包括 Broker 和消费组的主题"),
    "topics.unknown": ("The name server does not know this topic.", "名字服务器不知道这个主题。"),
    "topics.queues": ("Queues", "队列"),
    "topics.tail": ("Last messages", "最近的消息"),
    "topics.size": ("Size, by its newest messages", "大小（按最新消息估算）"),
    "topics.stored": ("Messages stored", "已存消息"),
    "topics.first": ("First offset", "最小位点"),
    "topics.end": ("Next offset", "下一位点"),
    "topics.last": ("Last stored", "最近存储"),
    "topics.groups": ("Groups that consume it", "消费它的组"),
    "topics.no_groups": ("No group was seen with this topic.", "没有看到消费此主题的组。"),
}
