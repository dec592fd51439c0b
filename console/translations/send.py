"""Texts of the page that sends a message: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "send.title": ("Send a message", "发送消息"),
    "send.link": ("Send a message …", "发送消息…"),
    "send.key": ("Sharding key: its messages stay in order", "分区键：同键消息保持顺序"),
    "send.keys": ("KEYS, by which brokers find it", "KEYS（Broker 据此查找）"),
    "send.delay": ("Delay level", "延时级别"),
    "send.group": (
        "To the queue that RocketMQ 5 gives the key as a message group",
        "发到 RocketMQ 5 为该键（消息组）选择的队列",
    ),
    "send.body_max": ("(the whole form: at most {count} bytes)", "（整个表单最多 {count} 字节）"),
    "send.properties": ("Properties, one a line", "属性，每行一个"),
    "send.send": ("Send", "发送"),
    "send.stored": ("Stored in queue {queue} at offset {offset}.", "已存入队列 {queue}，位点 {offset}。"),
    "send.look": ("Look at it", "查看"),
    "send.waits": (
        "The broker keeps message {id} until its time, and stores it in the topic then.",
        "Broker 会保留消息 {id}，到时间后再存入主题。",
    ),
    "send.bad_body": ("Write a body: it has at least one byte.", "请填写消息体，至少一个字节。"),
    "send.bad_delay": ("The delay level is a number from 0 to {most}.", "延时级别是 0 到 {most} 的数字。"),
    "send.bad_property": (
        "Write each property as name=value, not as {line}.",
        "属性请写成 name=value，而不是 {line}。",
    ),
    "send.failed": ("Not sent: {why}.", "未发送：{why}。"),
    "send.unknown": (
        "No success: {why}. The message may be stored: look before you send it again.",
        "未成功：{why}。消息可能已存储：再次发送前请先查看。",
    ),
}
