"""What the page says: key -> English, Chinese; and for each thing of the picture where it is explained."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from lockstep.console.translations.choose import LANGUAGES

__all__ = ["TEXTS", "THINGS", "Thing", "texts_in"]


class Thing(NamedTuple):
    """Where a thing is explained. Its sentence is the text "thing.NAME".

    Args:
        doc: a page of docs/ and its part.
        section: of an article, as `lockstep-sim article` names it; empty: none.
    """

    doc: str
    section: str = ""


THINGS: Final[Mapping[str, Thing]] = {
    "producer": Thing("order.md#from-key-to-queue", "1/2.1"),
    "names": Thing("glossary.md#servers-and-protocol"),
    "broker": Thing("glossary.md#servers-and-protocol", "1/2.2.2"),
    "queue": Thing("order.md#1-the-definition", "1/2"),
    "key": Thing("order.md#from-key-to-queue", "1/2.1"),
    "committed": Thing("order.md#a-consumers-queue", "3/ordered-commits"),
    "max": Thing("glossary.md#offsets", "1/2.2.5"),
    "lock": Thing("order.md#the-lock-to-the-millisecond", "1/2.2.2"),
    "member": Thing("order.md#a-consumers-queue", "5/2-balance"),
    "process_queue": Thing("order.md#a-consumers-queue", "5/2-process-queue"),
    "client_lock": Thing("order.md#the-lock-to-the-millisecond", "1/2.2.1"),
    "cached": Thing("order.md#a-consumers-queue", "4/3.1"),
    "delivery": Thing("order.md#1-the-definition"),
    "link": Thing("simulator.md#faults-by-name"),
    "judge": Thing("judge.md#kinds"),
    "hash": Thing("simulator.md#replay-shrink-explain-one-seed"),
    "faithful": Thing("order.md#the-lock-to-the-millisecond", "1/2.2.2"),
    "fenced": Thing("fencing.md"),
    "fifo": Thing("order.md#1-the-definition"),
}

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    # Things of the picture
    "thing.producer": (
        "A producer sends messages. The key of a message decides its queue.",
        "生产者发送消息。消息的键决定它进入哪个队列。",
    ),
    "thing.names": (
        "A name server tells clients which broker has which topic.",
        "名字服务器告诉客户端哪个 Broker 拥有哪个主题。",
    ),
    "thing.broker": (
        "A broker keeps the queues, the stored offsets, and the table of locks.",
        "Broker 保存队列、已存储的位点和锁表。",
    ),
    "thing.queue": (
        "A queue is a row of messages. Each tile is a message, and its number and colour are its key.",
        "队列是一行消息。每个方块是一条消息，数字和颜色表示它的键。",
    ),
    "thing.key": (
        "Messages of one key are in one queue, and are handled in the order in which they were sent.",
        "同一个键的消息在同一个队列中，并按发送的先后被处理。",
    ),
    "thing.committed": (
        "The committed offset: the next owner of the queue begins at this message.",
        "已提交的位点：队列的下一个持有者从这条消息开始。",
    ),
    "thing.max": (
        "The end of the queue: the next message that is sent gets this offset.",
        "队列的末尾：下一条发送的消息得到这个位点。",
    ),
    "thing.lock": (
        "The broker's lock of the queue. The arc is the time until it ends unless its owner renews it.",
        "Broker 上的队列锁。圆弧是它的剩余时间；持有者不续期，锁就到期。",
    ),
    "thing.member": (
        "A member of the consumer group. It handles the messages of the queues that it owns.",
        "消费组的成员。它处理自己持有的队列中的消息。",
    ),
    "thing.process_queue": (
        "A ProcessQueue: what a member knows of one of its queues. The filled tile is being handled.",
        "ProcessQueue：成员对它的一个队列的了解。实心方块正在被处理。",
    ),
    "thing.client_lock": (
        "Whether the member itself believes that it has the lock. It trusts a lock for 30 s after the last renewal.",
        "成员自己是否认为持有锁。最后一次续期之后，它在 30 s 内信任这把锁。",
    ),
    "thing.cached": (
        "Messages that the member has pulled and has not handled yet. The filled one is being handled.",
        "成员已拉取、尚未处理完的消息。实心的一条正在被处理。",
    ),
    "thing.delivery": (
        "A delivery: the message is invisible to others until the ring has run out.",
        "一次投递：圆环走完之前，其他成员看不到这条消息。",
    ),
    "thing.link": (
        "The connections of a member and a broker. They can be cut, held or delayed.",
        "成员与 Broker 之间的连接。可以切断、扣留或延迟。",
    ),
    "thing.judge": (
        "The judge compares what was handled with the rules of order while the run goes on.",
        "裁判在运行期间把处理情况与顺序规则对照。",
    ),
    "thing.hash": (
        "The hash of all that happened until now. The same plan has the same hash at the same moment.",
        "到此刻为止所有事件的哈希。同一份计划在同一时刻哈希相同。",
    ),
    "thing.faithful": (
        "The lock as RocketMQ has it: the broker does not compare pulls and commits with it.",
        "RocketMQ 的锁：Broker 不用它核对拉取和提交。",
    ),
    "thing.fenced": (
        "A lock with an epoch: the broker refuses what an old owner sends.",
        "带纪元的锁：Broker 拒绝旧持有者发来的请求。",
    ),
    "thing.fifo": (
        "A group that pops in order: the broker gives out messages of a queue, and hides them for a time.",
        "按顺序弹出的消费组：Broker 投递队列中的消息，并在一段时间内把它们隐藏。",
    ),
    "thing.section": ("Article {article}, section {section}", "文章 {article}，章节 {section}"),
    # Title, choices
    "title.page": ("The lab", "实验室"),
    "title.seed": ("seed {seed}", "种子 {seed}"),
    "title.cut": (
        "`lockstep-sim play` does not answer. Trying again.",
        "`lockstep-sim play` 没有应答，正在重试。",
    ),
    "title.close": ("Close", "关闭"),
    "title.skip": ("Skip to the picture", "跳到画面"),
    "title.language": ("Language", "语言"),
    "title.watch_only": (
        "This run can be watched, but not touched.",
        "这次运行只能观看，不能操作。",
    ),
    "title.script": ("This page needs JavaScript.", "此页需要 JavaScript。"),
    "title.loading": ("The run begins …", "运行即将开始 …"),
    "mode.faithful": ("faithful lock", "原样锁"),
    "mode.fenced": ("fenced lock", "带纪元的锁"),
    "mode.fifo": ("FIFO", "FIFO"),
    "mode.short.faithful": ("faithful", "原样"),
    "mode.short.fenced": ("fenced", "纪元"),
    "mode.short.fifo": ("FIFO", "FIFO"),
    "mode.before": ("{mode}: ", "{mode}："),
    "mode.both": ("both, side by side", "两者并排"),
    "mode.choose": ("Lock", "锁"),
    "side.label": ("The run with: {mode}", "运行方式：{mode}"),
    # Time
    "time.bar": ("Time", "时间"),
    "time.play": ("Play", "播放"),
    "time.pause": ("Pause", "暂停"),
    "time.restart": ("To the start", "回到开头"),
    "time.event": ("One event", "一个事件"),
    "time.second": ("One second", "一秒"),
    "time.finish": ("To the end", "到结尾"),
    "time.speed": ("Speed", "速度"),
    "time.reached": ("reached {times}×", "实际 {times}×"),
    "time.moment": ("Moment of the run", "运行的时刻"),
    "time.of": ("{now} of {whole}", "{whole} 中的 {now}"),
    "busy.plays": ("plays", "正在播放"),
    "busy.replays": ("replays", "正在重放"),
    "busy.replays_to": ("replays to {to}: {share} %", "正在重放到 {to}：{share} %"),
    "busy.plays_to_end": ("plays to the end: {at}", "正在播放到结尾：{at}"),
    # States
    "state.down": ("down", "已停机"),
    "state.stopped": ("stopped", "已暂停"),
    "state.asleep": ("asleep", "休眠"),
    "state.changes": ("changing", "切换中"),
    "lock.free": ("no lock", "无锁"),
    "lock.held": ("locked by {owner}, {rest} left, epoch {epoch}", "由 {owner} 持有，剩余 {rest}，纪元 {epoch}"),
    "lock.over": ("the lock of {owner} is over", "{owner} 的锁已到期"),
    "lock.draining": ("{owner} finishes what runs, {rest} left", "{owner} 正在完成手头的处理，剩余 {rest}"),
    "queue.row": (
        "committed {committed}, end {max}; keys from shortly before it: {keys}",
        "已提交 {committed}，末尾 {max}；从稍前开始的键：{keys}",
    ),
    "queue.waits": (
        "{owner} is {state}. Nobody else gets the queue before its lock ends, in {rest}.",
        "{owner} {state}。锁在 {rest} 后到期，在此之前其他成员得不到这个队列。",
    ),
    "queue.unasked": (
        "The lock of {owner} has ended. The queue waits until another member asks for it again, every 20 s.",
        "{owner} 的锁已到期。队列等待其他成员再次请求，每 20 s 一次。",
    ),
    "queue.silent": (
        "The lock of {owner} has ended, but nobody asks: {owner} is in the group until it was silent for 120 s.",
        "{owner} 的锁已到期，但没有成员请求：{owner} 沉默满 120 s 之前仍在消费组中。",
    ),
    "member.none": ("no queue", "没有队列"),
    "link.short": ("link", "连接"),
    "link.label": ("Link {link}: {state}", "连接 {link}：{state}"),
    "link.well": ("in order", "正常"),
    "held.locked": ("believes it has the lock", "认为持有锁"),
    "held.unlocked": ("no lock", "无锁"),
    "held.dropped": ("dropped", "已丢弃"),
    "held.suspended": ("suspended", "已挂起"),
    "held.cached": ("cached {cached}, running: {running}", "缓存 {cached}，处理中：{running}"),
    "held.nothing": ("none", "无"),
    # Judge
    "judge.title": ("The judge", "裁判"),
    "verdict.good": ("in order", "有序"),
    "verdict.wrong": ("violations", "违例"),
    "verdict.so_far": ("✓ In order so far, judged until {until}.", "✓ 至今有序，已判定到 {until}。"),
    "verdict.count": ("✗ Violations: {count}", "✗ 违例：{count}"),
    "wrong.at": ("at {at}, queue {queue}", "时刻 {at}，队列 {queue}"),
    "wrong.jump": ("Go to this moment", "跳到这一刻"),
    "wrong.told": ("Violation at {at}: {text}", "{at} 出现违例：{text}"),
    # Story
    "story.title": ("What happened", "发生了什么"),
    "story.jump": ("Go to this moment", "跳到这一刻"),
    "story.filter": ("Show", "显示"),
    "story.all": ("everything", "全部"),
    "story.none": ("Nothing yet.", "还没有。"),
    "focus.life": ("starts and ends", "启动和结束"),
    "focus.faults": ("faults", "故障"),
    "focus.members": ("members", "成员"),
    "focus.queues": ("shares of queues", "队列的分配"),
    "focus.locks": ("locks", "锁"),
    "focus.listener": ("the listener", "监听器"),
    "focus.offsets": ("offsets", "位点"),
    "focus.pulls": ("pulls", "拉取"),
    "focus.calls": ("single messages", "单条消息"),
    "focus.sends": ("sends", "发送"),
    "focus.retries": ("retries", "重试"),
    "follow.title": ("Follow a key", "跟踪一个键"),
    "follow.key": ("Follow key {key}", "跟踪键 {key}"),
    "follow.queue": ("Follow this queue", "跟踪此队列"),
    "follow.stop": ("Follow nothing", "停止跟踪"),
    "follow.key_now": ("Following key {what}.", "正在跟踪键 {what}。"),
    "follow.queue_now": ("Following queue {what}.", "正在跟踪队列 {what}。"),
    # Plan
    "plan.title": ("The plan", "计划"),
    "plan.about": (
        "Each touch becomes a line of the plan. After a step back, a new touch drops the later ones.",
        "每次操作都成为计划中的一行。回退之后的新操作会去掉更晚的操作。",
    ),
    "plan.none": ("No line yet. Click a host or a link.", "还没有。请点击主机或连接。"),
    "plan.undo": ("Undo the last touch", "撤销上一次操作"),
    "open.title": ("Another story", "换一个故事"),
    "open.what": ("Story, exhibit or section", "故事、展品或章节"),
    "open.seed": ("Seed", "种子"),
    "open.go": ("Open", "打开"),
    "open.about": (
        "`lockstep-sim list`, `museum` and `article` name them.",
        "名称见 `lockstep-sim list`、`museum` 和 `article`。",
    ),
    "home.title": ("Take it home", "带回家"),
    "home.about": (
        "What repeats this run elsewhere, to the last byte.",
        "在别处逐字节重现这次运行所需的一切。",
    ),
    "home.command": ("The command", "命令"),
    "home.plan": ("The plan file {file}", "计划文件 {file}"),
    "home.test": ("For pytest, with your listener: {file}", "pytest 测试，用你自己的监听器：{file}"),
    "home.timeline": ("The timeline as a page", "时间线页面"),
    "home.copy": ("Copy", "复制"),
    "home.copied": ("Copied", "已复制"),
    "home.save": ("Save", "保存"),
    "lessons.title": ("Lessons", "课程"),
    # Touches
    "touch.watch_only": ("This run can be watched only.", "这次运行只能观看。"),
    "touch.lasts": ("It lasts", "持续"),
    "touch.until": ("until I end it", "直到我结束它"),
    "touch.for": ("for {time}", "{time}"),
    "touch.kill": ("Kill the process", "杀死进程"),
    "touch.power-off": ("Cut the power of the machine", "切断机器电源"),
    "touch.leave": ("Shut it down cleanly", "正常关闭"),
    "touch.start": ("Start it", "启动"),
    "touch.stall": ("Stop it, as by SIGSTOP", "暂停进程（SIGSTOP）"),
    "touch.sleep": ("Let the machine sleep", "让机器休眠"),
    "touch.go-on": ("Let it go on", "让它继续"),
    "touch.slow-cpu": ("Slow its processor: {amount} a callback", "放慢处理器：每个回调 {amount}"),
    "touch.slow-listener": ("Slow its listener: {amount} a call", "放慢监听器：每次调用 {amount}"),
    "touch.fail-listener": ("Let its listener fail", "让监听器失败"),
    "touch.slow-disk": ("Slow its disk: {amount} a sync", "放慢磁盘：每次同步 {amount}"),
    "touch.hang-disk": ("Let its disk hang", "让磁盘挂起"),
    "touch.stale-routes": ("Answer routes that are {amount} old", "返回 {amount} 前的路由"),
    "touch.send": ("Send a message with {key}", "发送键为 {key} 的消息"),
    "touch.cut": ("Cut the connections", "切断连接"),
    "touch.cut-one-side": ("Cut them at {a} alone", "只在 {a} 一侧切断"),
    "touch.partition": ("Partition: no byte passes", "网络分区：没有字节通过"),
    "touch.hold": ("Hold what {a} sends to {b}", "扣留 {a} 发给 {b} 的数据"),
    "touch.slow": ("Delay each byte by {amount}", "每个字节延迟 {amount}"),
    "touch.mend": ("Mend the link", "恢复连接"),
    # Help
    "legend.title": ("What is what", "图例说明"),
    "legend.tile": ("a message, with the number of its key", "一条消息，数字是它的键"),
    "help.title": ("Keys", "快捷键"),
    "help.space": ("play, pause", "播放、暂停"),
    "help.event": ("one event", "一个事件"),
    "help.second": ("one second forward, back", "前进一秒、后退一秒"),
    "help.speed": ("faster, slower", "加快、放慢"),
    "help.mark": ("to the next, the last moment at which something happened", "到下一个、上一个有事发生的时刻"),
    "help.ends": ("to the start, to the end", "到开头、到结尾"),
    "help.undo": ("undo the last touch", "撤销上一次操作"),
    "help.touch": ("on a host, a link or a queue: what can be done", "在主机、连接或队列上：可以做什么"),
    "help.escape": ("close, follow nothing", "关闭、停止跟踪"),
    "help.help": ("these keys", "这些快捷键"),
    "docs.back": ("Back to the run", "回到运行"),
    "docs.none": (
        "This page is in the source tree of Lockstep: docs/{name}",
        "此页在 Lockstep 的源码树中：docs/{name}",
    ),
    "docs.article": ("Section {section} of article {article}: {title}", "文章 {article} 的 {section} 节：{title}"),
    "docs.story": ("Its story: {story}", "它的故事：{story}"),
}


def texts_in(language: str) -> dict[str, str]:
    """All texts in a language of LANGUAGES."""
    column = list(LANGUAGES).index(language)
    return {key: both[column] for key, both in TEXTS.items()}
