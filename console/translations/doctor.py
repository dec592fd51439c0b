"""Texts of the page Doctor: key -> English, Chinese. The English of the rules is their own."""

from collections.abc import Mapping
from typing import Final

from lockstep.client.diagnosis.rules import RULES

__all__ = ["TEXTS"]

# Rule -> its consequence and its cure.
_RULES: Final[Mapping[str, tuple[str, str]]] = {
    "mixed-order": (
        "并发成员不加锁，因此两个成员会同时消费同一个队列。",
        "让组内所有成员都用顺序监听器，或把其他成员放到另一个组。",
    ),
    "same-client-id": ("Broker 把两者当作一个客户端，把同样的队列给了两者。", "给每个进程不同的实例名。"),
    "unequal-subscriptions": (
        "Broker 只保留最后发送的订阅：成员会丢消息，队列来回移动。",
        "让所有成员用同样的表达式订阅同样的主题。",
    ),
    "no-owner": (
        "这些消息没有被消费。",
        "在成员的日志中查找 lock_refused；已死成员的锁在其寿命（60 秒）后结束。",
    ),
    "key-in-several-queues": (
        "同一个键的消息会被多个成员同时消费。",
        "同一个键总是发到同一个队列；不要改变队列数。",
    ),
    "queues-changed": (
        "键会移到别的队列：新消息会超过还在旧队列里等待的消息。",
        "让消费者先消费完旧队列，再把两个数设为相同的值。",
    ),
    "queues-differ-over-brokers": (
        "成员的份额不均，有 Broker 不在时键会移动。",
        "让该主题在每个 Broker 上有相同的队列数。",
    ),
    "slow-listener": (
        "比锁更久的调用会与下一个持有者的调用同时运行。",
        "缩短调用，或使用 fenced 锁：它在调用期间续期，并拒绝迟到的提交。",
    ),
    "short-locks": (
        "锁的有效期短于客户端的续期间隔：每个锁都在持有者工作时到期，同一队列可能有两个持有者。",
        "启动 broker 时把 `--lock-live-ms` 设得大于这两个间隔（RocketMQ 为 60000），或调小客户端的两个设置。",
    ),
    "late-renewals": (
        "成员每 20 秒续期一次。没有续期的锁会丢失，队列会移动。",
        "检查持有者的进程是否繁忙或停顿，网络是否缓慢。",
    ),
    "flapping": (
        "每次移动都会重复消费消息，并使队列停顿一会儿。",
        "查找不断重启的成员，或心跳、续期迟到的成员：`lockstep lock watch --refusals`。",
    ),
    "blocked-head": (
        "第一条消息挡住了后面所有的消息。",
        "修好监听器，或设置 max_reconsume_times，让这条消息成为死信。",
    ),
    "idle-owner": (
        "队列有持有者，但它不消费。",
        "查看持有者的日志：拉取被限流、队列被挂起、线程池已满。",
    ),
    "pops-beside-owners": (
        "以 POP 消费的成员（gRPC、`--pop`）会得到其他成员正在消费的队列的消息。",
        "让以 POP 消费的成员使用单独的组，或使用 fenced 锁。",
    ),
    "more-members-than-queues": (
        "多于队列数的成员无事可做。",
        "增加队列（在主题为空时），或减少成员。",
    ),
    "from-last-offset": (
        "CONSUME_FROM_LAST_OFFSET：这样的队列从末尾开始，较早的消息被跳过。",
        "用 CONSUME_FROM_FIRST_OFFSET 启动该组，或事先设置位点。",
    ),
    "unequal-settings": ("消息如何处理取决于得到它的成员。", "让所有成员使用相同的设置。"),
    "dead-letters": (
        "死信后面的消息在缺少它的情况下被消费了。",
        "`lockstep message tail -t '%DLQ%GROUP'` 可以查看死信。",
    ),
    "retry-without-members": ("它们会一直等到该组有成员启动。", "启动一个成员，或删除该组。"),
    "clocks-apart": ("延迟、按时间的位点以及日志和轨迹中的时间会不一致。", "用 NTP 校准时钟。"),
    "limits-met": (
        "请求被拒绝或丢弃，或连接被关闭：客户端需要等待，其队列可能转移。",
        "Broker 日志中的 `limit_met` 指出对端；docs/hostile.md 列出每个限制及其设置项。",
    ),
    "group-not-ordered": (
        "加入该组的 RocketMQ 5 客户端（gRPC）收到的消息没有顺序。",
        "`lockstep group update GROUP --fifo`。",
    ),
    "fifo-without-order": (
        "RocketMQ 5 客户端会同时收到同一个键的消息，互不等待。",
        "`lockstep group update GROUP --fifo`。",
    ),
    "delivery-holds-queue": (
        "它后面的消息在等待：fenced 模式下是同一个键的消息，否则是整个队列。",
        "查看该客户端：它必须确认消息，或把消息还回；`lockstep group deliveries GROUP` 列出全部。",
    ),
    "stale-answers": (
        "监听器的处理超过了不可见时间，下一个得到该消息的监听器已同时在处理。",
        "使用更长的不可见时间，或在处理时续期。",
    ),
    "trace-topic-missing": ("消息轨迹会丢失。", "用 `-D traceTopicEnable=true` 启动 Broker。"),
}

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "doctor.choose": ("Show", "显示"),
    "doctor.again": ("Look again", "重新诊断"),
    "doctor.looking": ("Looking at the cluster …", "正在检查集群…"),
    "doctor.looking_why": (
        "{count} rules are asked. This page shows what they found by itself.",
        "正在检查 {count} 条规则，结果会自动显示。",
    ),
    "doctor.looked": (
        "{rules} rules looked at {groups} groups at {time}.",
        "{time}：{rules} 条规则检查了 {groups} 个组。",
    ),
    "doctor.nothing": (
        "Nothing was found: {rules} rules, {groups} groups.",
        "没有发现问题：{rules} 条规则，{groups} 个组。",
    ),
    "doctor.no_group": ("There was little to look at", "没有什么可检查的"),
    "doctor.no_group_why": ("No consumer group is online or has offsets.", "没有消费组在线或存有位点。"),
    "doctor.found": (
        "Findings that break order: {breaking}. Warnings: {warnings}.",
        "发现：{breaking} 项会破坏顺序，{warnings} 项警告。",
    ),
    "doctor.breaks": ("✕ Breaks order", "✕ 破坏顺序"),
    "doctor.warning": ("! Warning", "! 警告"),
    "doctor.seen": ("Seen", "现象"),
    "doctor.so": ("So", "后果"),
    "doctor.cure": ("Cure", "解决办法"),
    **{f"rule.{name}.so": (RULES[name].consequence, so) for name, (so, _) in _RULES.items()},
    **{f"rule.{name}.cure": (RULES[name].cure, cure) for name, (_, cure) in _RULES.items()},
}
