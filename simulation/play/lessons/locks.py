"""Lessons about the lock of a queue: its owner, its ring, and how the owner goes."""

from typing import Final

from lockstep.simulation.play.lessons.lesson import Lesson, Seen, Text, Touch

__all__ = ["LESSONS"]

_MANY: Final = {"consumers": 3, "queues": 2}
_BUSY: Final = {"rate": 6, "work": "1500ms", "life": "2m"}  # c1 has more messages than it can handle
_CUT_OFF: Final = Text(
    "Click the link of c1, in its card: partition, no byte passes.", "点击 c1 卡片中的连接：网络分区，没有字节通过。"
)


def _nobody_helps(seen: Seen) -> bool:
    return any(queue["cached"] > 10 for queue in seen.one.held("c1")) and not seen.one.held("c3")


def _lasts_longer_than_two_renewals(seen: Seen) -> bool:
    side = seen.one
    return side.owners[:2] == ["c1", "c1"] and max(side.lock_ages()) > 45_000


def _nobody_works(seen: Seen) -> bool:
    side = seen.one
    held = side.held("c1")
    idle = bool(held) and all(queue["cached"] and not queue["running"] for queue in held)
    return idle and side.owners[:2] == ["c1", "c1"]


def _c2_waited(seen: Seen) -> bool:
    return set(seen.one.owners) == {"c2"} and min(seen.one.changes(), default=0) > 35_000


def _c2_did_not_wait(seen: Seen) -> bool:
    return set(seen.one.owners) == {"c2"} and max(seen.one.changes(), default=9_999) < 3_000


LESSONS: Final = (
    Lesson(
        key="owner",
        section="1/1",
        title=Text("One owner a queue", "一个队列，一个持有者"),
        watch=Text(
            "Three members share two queues. Each queue has a ring with the name of its owner. c3 has no queue.",
            "三个成员分两个队列。每个队列的圆环上写着它的持有者。c3 没有队列。",
        ),
        question=Text(
            "The listener of c1 becomes slow: two seconds a message. Who helps with its queue?",
            "c1 的监听器变慢：每条消息两秒。谁来帮它处理这个队列？",
        ),
        choices=(
            Text("c3, which has nothing to do", "空闲的 c3"),
            Text("c2, when its own queue is empty", "c2，等它自己的队列处理完"),
            Text("Nobody", "没有成员"),
        ),
        right=2,
        do=Text("Click c1: slow its listener, 2 s a call.", "点击 c1：放慢监听器，每次调用 2 s。"),
        touches=(Touch("slow-listener c1=2s"),),
        show_ms=20_000,
        setup=_MANY,
        answer=Text(
            "A queue has one owner, so that its messages are handled one after the other. The messages of c1 "
            "wait, and "
            "c3 stays idle. More members than queues do not help.",
            "一个队列只有一个持有者，这样其中的消息才能逐条处理。c1 的消息在等待，c3 仍然空闲。成员多于队列没有用处。",
        ),
        shown=_nobody_helps,
    ),
    Lesson(
        key="ring",
        section="1/2.2.1",
        title=Text("The ring that runs out", "会走完的圆环"),
        watch=Text(
            "A ring is full when the lock was renewed, and empty 60 s later. Count the seconds between two renewals.",
            "锁续期时圆环是满的，60 s 后走完。数一数两次续期之间有多少秒。",
        ),
        question=Text(
            "c1 cannot reach the broker any more. How many renewals may it miss before its lock ends?",
            "c1 不再能连到 Broker。在锁到期之前，它可以错过几次续期？",
        ),
        choices=(Text("None", "零次"), Text("Two", "两次"), Text("Five", "五次")),
        right=1,
        do=_CUT_OFF,
        touches=(Touch("partition c1-broker"),),
        show_ms=45_000,
        answer=Text(
            "Each member renews its locks every 20 s, and the broker keeps a lock for 60 s. So a request may get "
            "lost, "
            "and the next one too. Only a third one in a row costs the lock.",
            "成员每 20 s 续期一次，Broker 把锁保留 60 s。所以丢一次请求没有关系，再丢一次也没有关系，"
            "连续丢第三次才会失去锁。",
        ),
        shown=_lasts_longer_than_two_renewals,
    ),
    Lesson(
        key="belief",
        section="2/queue-lock",
        title=Text("30 s here, 60 s there", "这里 30 s，那里 60 s"),
        watch=Text(
            "The listener takes 1.5 s a message. So c1 has more and more messages in its cache.",
            "监听器每条消息用 1.5 s，所以 c1 的缓存里消息越来越多。",
        ),
        question=Text(
            "c1 is cut off from the broker. How long does it go on with the messages of its cache?",
            "c1 与 Broker 断开。它会继续处理缓存中的消息多久？",
        ),
        choices=(
            Text("Until the cache is empty", "直到缓存处理完"),
            Text("Until 30 s after its last renewal", "直到最后一次续期之后 30 s"),
            Text("Until its ring at the broker is empty", "直到 Broker 上的圆环走完"),
        ),
        right=1,
        do=_CUT_OFF,
        touches=(Touch("partition c1-broker"),),
        show_ms=35_000,
        setup=_BUSY,
        answer=Text(
            "The broker keeps a lock for 60 s; its owner trusts it for 30 s only. So the old owner has stopped when "
            "another one may begin. In between nobody handles the queue.",
            "Broker 把锁保留 60 s，持有者只信任它 30 s。所以别的成员可以开始时，旧的持有者早已停下。"
            "这中间没有成员处理这个队列。",
        ),
        shown=_nobody_works,
    ),
    Lesson(
        key="killed",
        section="1/2.2.2",
        title=Text("Why a killed member's queues wait", "被杀死的成员，队列为什么要等"),
        watch=Text(
            "c1 and c2 have two queues each. Their rings are renewed, and the messages are handled at once.",
            "c1 和 c2 各有两个队列。圆环不断续期，消息立即得到处理。",
        ),
        question=Text(
            "c1 is killed, and the broker notices it at once. When does c2 get the queues of c1?",
            "c1 被杀死，Broker 立即发现。c2 什么时候得到 c1 的队列？",
        ),
        choices=(
            Text("At once", "立即"),
            Text("At its next rebalance, within 20 s", "下一次重平衡时，20 s 之内"),
            Text("When the rings of c1 have run out", "c1 的圆环走完之后"),
        ),
        right=2,
        do=Text("Click c1: kill the process. Watch its rings.", "点击 c1：杀死进程。看它的圆环。"),
        touches=(Touch("kill c1"),),
        show_ms=80_000,
        answer=Text(
            "The dead cannot give a lock back, and the broker keeps it for 60 s after the last renewal. c2 asks "
            "again "
            "and again, and is refused. The messages of these queues wait; those of the others do not.",
            "死掉的成员无法归还锁，Broker 在最后一次续期之后仍保留它 60 s。c2 一再请求，都被拒绝。"
            "这些队列的消息在等待，其他队列不受影响。",
        ),
        shown=_c2_waited,
    ),
    Lesson(
        key="leaves",
        section="5/7",
        title=Text("Who says goodbye", "好好告别"),
        watch=Text(
            "The same two members. This time c1 is shut down, as in a deployment.",
            "还是这两个成员。这一次 c1 正常关闭，就像发布新版本时那样。",
        ),
        question=Text("When does c2 get the queues of c1 now?", "这一次，c2 什么时候得到 c1 的队列？"),
        choices=(
            Text("At once", "立即"),
            Text("Within 20 s", "20 s 之内"),
            Text("When the rings of c1 have run out", "c1 的圆环走完之后"),
        ),
        right=0,
        do=Text("Click c1: shut it down cleanly.", "点击 c1：正常关闭。"),
        touches=(Touch("leave c1"),),
        show_ms=5_000,
        answer=Text(
            "Who leaves ends its calls, stores its offsets and unlocks its queues. The broker tells the others, "
            "and they "
            "rebalance at once. Nothing waits, and nothing is handled twice.",
            "离开的成员先完成手头的调用，存好位点，再释放队列。Broker 通知其他成员，它们立即重平衡。没有等待，"
            "也没有重复处理。",
        ),
        shown=_c2_did_not_wait,
    ),
)
