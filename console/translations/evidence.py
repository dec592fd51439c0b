"""What the doctor saw, in Chinese: its rules say it in English, in sentences with names and numbers in them."""

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["chinese_evidence", "chinese_place"]

_PLACES: Final[Mapping[str, str]] = {
    "group": "消费组", "topic": "主题", "broker": "Broker", "producer": "生产者", "client": "客户端",
}  # fmt: skip
_LENGTH_MAX: Final = 2000  # a client may choose names that take long to look through
_MEMBERS: Final = r"([\d,]+) members?"
_TIME: Final = r"([\d.]+ s|\d+ min \d+ s)"
# Whole sentences. What a group of them matches is a list of names; its items are looked up among the next ones.
_SENTENCES: Final = tuple(
    (re.compile(form, re.DOTALL), chinese)
    for form, chinese in (
        (r"in order: (.*); concurrently: (.*)", "顺序：{}；并发：{}"),
        (r"they pop: (.*); they own queues: (.*)", "以 pop 方式消费：{}；持有队列：{}"),
        (r"(.*) is connected from (.*); one may have been cut, and be gone within two minutes",
         "{} 的连接来自 {}；其中一个可能已断开，两分钟内会消失"),
        (r"(.*) is connected from (.*)", "{} 的连接来自 {}"),
        (_MEMBERS + r", and (.*) has ([\d,]+) queues?", "{} 个成员，而 {} 有 {} 个队列"),
        (r"no offset is stored of (.*), which ha(?:s|ve) messages", "{} 有消息，但没有存储的位点"),
        (r"(.*) would send traces to (.*), which does not exist", "{} 要把轨迹发到 {}，但这个主题不存在"),
        (rf"a call of (.*) for (.*) takes {_TIME} on average; a lock lasts {_TIME}",
         "{} 处理 {} 的一次调用平均用时 {}；一个锁的寿命是 {}"),
        (rf"a call of (.*) for (.*) runs since {_TIME}, and messages wait",
         "{} 处理 {} 的一次调用已运行 {}，有消息在等待"),
        (r"([\d,]+) of ([\d,]+) calls? of (.*) took longer than half the life of a lock",
         "{2} 的 {1} 次调用中有 {0} 次超过锁寿命的一半"),
        (r"(.*) fails again and again, and succeeds with none: (.*)", "{} 不断失败，没有一条成功：{}"),
        (rf"(.*) is ([\d,]+) behind, and (.*) has consumed none for {_TIME}", "{} 积压 {} 条，{} 已有 {} 没有消费"),
        (rf"messages wait in (.*), and none of {_MEMBERS} has the lock", "{} 中有消息等待，{} 个成员都没有它的锁"),
        (r"the last renewals are old: (.*)", "上次续期已久：{}"),
        (r"of its locks: (.*)", "它的锁：{}"),
        (r"queues got another owner within 15 minutes: (.*)", "15 分钟内更换过持有者的队列：{}"),
        (rf"([\d,]+) dead letters?, the last one {_TIME} ago", "{} 条死信，最后一条在 {} 前"),
        (r"([\d,]+) messages? of its retry topic wait", "它的重试主题有 {} 条消息在等待"),
        (r"consumeMessageOrderly is false on a broker of RocketMQ 5",
         "RocketMQ 5 的 Broker 上 consumeMessageOrderly 为 false"),
        (r"it consumes (.*), made for messages in order, and consumeMessageOrderly is not set",
         "它消费为顺序消息创建的 {}，但没有设置 consumeMessageOrderly"),
        (r"deliveries are held: (.*)", "投递被占用：{}"),
        (r"delivered again and again, and acknowledged by nobody: (.*)", "反复投递，却无人确认：{}"),
        (rf"([\d,]+) answers? came after another delivery had begun, the last one {_TIME} ago",
         "{} 个应答在另一次投递开始之后才到，最后一个在 {} 前"),
        (r"(.*) has (\d+) queues for reading and (\d+) for writing", "{} 有 {} 个读队列和 {} 个写队列"),
        (rf"its clock is {_TIME} ahead of this machine's", "它的时钟比本机快 {}"),
        (rf"its clock is {_TIME} behind this machine's", "它的时钟比本机慢 {}"),
        (rf"its messages were stored {_TIME} before they were sent", "它的消息存储时间比发送时间早 {}"),
        (rf"(.*) was reached ([\d,]+) times? since its start, the last one {_TIME} ago",
         "启动以来 {} 已达到 {} 次，最近一次在 {} 前"),
    )
)  # fmt: skip
_ITEMS: Final = tuple(
    (re.compile(form), chinese)
    for form, chinese in (
        (r"(\S+) of (\S+) " + rf"\({_TIME} ago\)", r"\1，\2（\3 前）"),
        (r"\((\d+) times\)", r"（\1 次）"),
        (rf" at offset (\d+) by (?:a client|(\S+)) for {_TIME}", r" 位点 \1 \2 已 \3"),
        (r" at offset (\d+)", r" 位点 \1"),
        (rf" renews it each {_TIME} and trusts it for {_TIME}, and it lives {_TIME}",
         r" 每 \1 续期一次，信任 \2，而它的寿命是 \3"),
        (r"key ('[^']*') of (\S+) in ", r"\2 的键 \1 在 "),
        (r"(^|; )(\S+) has none", r"\1\2 没有订阅"),
        (r"(^|; )(\S+) has (?=\S+ ['\"])", r"\1\2 订阅 "),
        (r" and (\d+) more$", r" 等（另有 \1 个）"),
        (r"(?<= )at (?=\S)", "在 "),
        ("; ", "；"),
    )
)  # fmt: skip


def chinese_place(where: str) -> str:
    """ "group shop" """
    kind, space, name = where.partition(" ")
    return f"{_PLACES.get(kind, kind)}{space}{name}"


def chinese_evidence(evidence: str) -> str:
    """A sentence that is not known here, of a newer rule, keeps its words."""
    if len(evidence) > _LENGTH_MAX:
        return evidence
    for form, chinese in _SENTENCES:
        found = form.fullmatch(evidence)
        if found is not None:
            return chinese.format(*map(_listed, found.groups()))
    return _listed(evidence)


def _listed(text: str) -> str:
    for form, chinese in _ITEMS:
        text = form.sub(chinese, text)
    return text
