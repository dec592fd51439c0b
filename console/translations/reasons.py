"""Why a member has a queue, or does not have it, in Chinese: members say it in English, in parts."""

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["PARTS", "chinese_reason"]

_SEPARATOR: Final = re.compile("(: |, |; )")
_SEPARATORS: Final = {": ": "：", ", ": "，", "; ": "；"}

PARTS: Final[Mapping[str, str]] = {
    "the first rebalance of this member": "该成员的首次重平衡",
    "allocated to this member as before": "与之前一样分配给该成员",
    "allocated to this member": "分配给该成员",
    "its lock is free now": "它的锁现在空闲",
    "its last period ended": "上一段持有已结束",
    "its period ended": "这段持有已结束",
    "its period ends": "这段持有正在结束",
    "its lock had expired": "它的锁已过期",
    "its lock had run out": "它的锁已到期",
    "it begins anew": "重新开始",
    "its listener still ran when it was given up": "放弃时监听器仍在运行",
    "its offset is reset": "它的位点被重置",
    "shutdown": "关闭",
    "the route changed": "路由有变化",
    "locked by another client": "被另一个客户端锁定",
    "which is no member now": "它已不是成员",
    "its lease or its lock delay runs": "它的租约或锁延迟还没有结束",
    "which the broker does not name": "Broker 没有说是谁",
    "its broker did not answer": "Broker 没有应答",
    "its unlock is not answered yet": "解锁还没有得到应答",
    "not granted": "没有授予",
    "reckoned": "推算",
    "this member holds the lock": "该成员持有锁",
    "no lock of it is known": "没有已知的锁",
}
# Parts with a name or a number in them, or in their place.
_FORMS: Final = tuple(
    (re.compile(form), chinese)
    for form, chinese in (
        (r"(\S+) joined", "{} 加入"),
        (r"(\S+) left", "{} 离开"),
        (r"by (\S+)", "由 {} 持有"),
        ("allocated to another member", "分配给另一个成员"),
        (r"allocated to (\S+)", "分配给 {}"),
        (r"the topic has (\d+) queues", "主题现有 {} 个队列"),
        (r"had (\d+)", "之前有 {} 个"),
        (r"not pulled for (\d+) ms", "{} ms 没有拉取"),
        (r"(\S+) had it in the last allocation", "上次分配时属于 {}"),
        (r"(\S+) holds the lock", "{} 持有锁"),
        (r"AVG of (\d+) members gives it to no member", "{} 个成员的 AVG 没有分配它"),
        (r"AVG of (\d+) members gives it to (\S+)", "{} 个成员的 AVG 把它分配给 {}"),
    )
)


def chinese_reason(reason: str) -> str:
    """A part that is not known here, of a newer member, stays as it is."""
    return "".join(_SEPARATORS.get(part) or _translated(part) for part in _SEPARATOR.split(reason))


def _translated(part: str) -> str:
    if part in PARTS:
        return PARTS[part]
    for form, chinese in _FORMS:
        if found := form.fullmatch(part):
            return chinese.format(*found.groups())
    return part
