"""Texts of the pages of brokers: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "brokers.none": ("No broker yet", "还没有 Broker"),
    "brokers.none_why": (
        "The name server {name_server} has named none. The console goes on asking.",
        "名字服务器 {name_server} 还没有给出 Broker。控制台会继续询问。",
    ),
    "brokers.silent": (
        "This broker does not answer now. What was known before is not shown here.",
        "此 Broker 现在没有应答。此处不显示以前的数据。",
    ),
    "brokers.address": ("Address", "地址"),
    "brokers.make": ("Make", "种类"),
    "brokers.state": ("State", "状态"),
    "brokers.answers": ("answers", "正常应答"),
    "brokers.gone": ("gone since {time}", "从 {time} 起无应答"),
    "brokers.put_tps": ("Sent a second", "每秒写入"),
    "brokers.get_tps": ("Pulled a second", "每秒拉取"),
    "brokers.put_today": ("Sent today", "今日写入"),
    "brokers.disk": ("Store used", "存储占用"),
    "brokers.uptime": ("Running for", "已运行"),
    "brokers.rate": ("{rates} a second", "每秒 {rates}"),
    "brokers.rates": ("{rates} a second in the last 10 s, 1 min, 10 min", "每秒 {rates}（最近 10 s、1 min、10 min）"),
    "brokers.capacity": ("{total} in all, {free} free", "共 {total}，可用 {free}"),
    "brokers.name": ("Name", "名称"),
    "brokers.value": ("Value", "值"),
    "brokers.settings": ("Settings", "设置"),
    "brokers.subject.rates": ("Rates and totals", "速率与总量"),
    "brokers.subject.store": ("Store", "存储"),
    "brokers.subject.order": ("Locks and fences", "锁与围栏"),
    "brokers.subject.delays": ("Delays", "延迟消息"),
    "brokers.subject.other": ("Other", "其他"),
}
