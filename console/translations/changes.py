"""Texts of the pages that create, change and delete topics and groups: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "changes.topic": ("Create or change a topic", "创建或更改主题"),
    "changes.group": ("Create or change a group", "创建或更改消费组"),
    "changes.create_topic": ("Create a topic …", "创建主题…"),
    "changes.create_group": ("Create a group …", "创建消费组…"),
    "changes.change": ("Change …", "更改…"),
    "changes.delete": ("Delete", "删除"),
    "changes.delete_link": ("Delete …", "删除…"),
    "changes.delete_topic": ("Delete topic {topic}", "删除主题 {topic}"),
    "changes.delete_group": ("Delete group {group}", "删除消费组 {group}"),
    "changes.read_queues": ("Queues to read", "读队列数"),
    "changes.write_queues": ("Queues to write", "写队列数"),
    "changes.perm": ("Permissions", "权限"),
    "changes.perm.rw": ("read and write", "读写"),
    "changes.perm.r": ("read only", "只读"),
    "changes.perm.w": ("write only", "只写"),
    "changes.type": ("Message type", "消息类型"),
    "changes.attributes": ("Other attributes", "其他属性"),
    "changes.as_it_is": ("as it is", "保持不变"),
    "changes.force": ("Also when keys go to other queues", "即使键会转到别的队列"),
    "changes.moves_keys": (
        "Keys would go to other queues, out of order with what is stored there. The box above allows it.",
        "键会转到别的队列，与已存的消息失去顺序。勾选上面的选项才会执行。",
    ),
    "changes.order": ("In order for clients of RocketMQ 5", "对 RocketMQ 5 客户端保持顺序"),
    "changes.retries": ("Retries", "重试次数"),
    "changes.preview": ("Nothing is changed yet. This would change:", "尚未更改。将更改以下内容："),
    "changes.nothing": ("Nothing would change.", "没有要更改的内容。"),
    "changes.at_brokers": ("At each broker", "各 Broker"),
    "changes.new": ("new", "新建"),
    "changes.confirm": ("Change {name}", "更改 {name}"),
    "changes.to": ("To {name}", "转到 {name}"),
    "changes.outcome.done": ("Done: {name}.", "已完成：{name}。"),
    "changes.outcome.refused": ("{name} refuses: {why}.", "{name} 拒绝：{why}。"),
    "changes.outcome.unknown": (
        "{name} gave no answer, and may still do it: {why}. Look at it later.",
        "{name} 没有应答，仍可能执行：{why}。请稍后查看。",
    ),
    "changes.unkept": (
        "{names} took the change, and does not keep all of it: brokers of RocketMQ 4 have no order for clients of 5.",
        "{names} 接受了更改，但未全部保存：RocketMQ 4 的 Broker 不为 5 的客户端保持顺序。",
    ),
    "changes.topic_goes": (
        "Its {queues} queues go with {messages} messages. They cannot be brought back.",
        "它的 {queues} 个队列和 {messages} 条消息将被删除，无法恢复。",
    ),
    "changes.offsets_go": ("The offsets of {groups} go too.", "{groups} 的位点也会删除。"),
    "changes.kept_offsets": (
        "A broker of RocketMQ 4 keeps the offsets of {groups}: reset them when there is a topic of this name again.",
        "RocketMQ 4 的 Broker 保留 {groups} 的位点：再次创建同名主题时请重置它们。",
    ),
    "changes.consumed_by": (
        "Group {group} consumes the topic with {ids}: stop its members first.",
        "消费组 {group} 正在用 {ids} 消费此主题：请先停止其成员。",
    ),
    "changes.group_goes": (
        "Its settings and its offsets go, of the topics: {topics}. They cannot be brought back.",
        "它的设置和位点将被删除，主题：{topics}。无法恢复。",
    ),
    "changes.is_back": (
        "A broker has made the group again with its defaults, without offsets: its autoCreateSubscriptionGroup is on.",
        "有 Broker 用默认设置重新创建了该消费组（无位点）：它开启了 autoCreateSubscriptionGroup。",
    ),
    "changes.online": (
        "The group is online with {ids}: stop its members first, or they create it again.",
        "消费组在线，成员有 {ids}：请先停止它们，否则它们会重新创建消费组。",
    ),
    "changes.with_topics": ("Also its topics: {topics}", "同时删除它的主题：{topics}"),
    "changes.type_name": ("Type {name} to confirm", "输入 {name} 以确认"),
    "changes.bad_name": ("The name that you typed is another one: nothing was deleted.", "输入的名称不符：没有删除。"),
    "changes.bad_system": (
        "{topic} is a topic of the brokers themselves: it stays as it is.",
        "{topic} 是 Broker 自己的主题，不能更改。",
    ),
    "changes.bad_queues": (
        "Give a whole number from 1 to {most} for both kinds of queues.",
        "读、写队列数请填 1 到 {most} 的整数。",
    ),
    "changes.bad_perm": ("Choose the permissions.", "请选择权限。"),
    "changes.bad_broker": ("No broker {broker} is registered.", "没有注册的 Broker {broker}。"),
    "changes.bad_order": ("Choose whether the group is in order.", "请选择是否保持顺序。"),
    "changes.bad_retries": ("Give a whole number from 0 to {most}.", "请填 0 到 {most} 的整数。"),
}
