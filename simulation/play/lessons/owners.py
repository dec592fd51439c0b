"""Lessons about the next owner of a queue: when it comes, where it begins, and what the old one does meanwhile."""

from typing import Final

from lockstep.simulation.play.lessons.lesson import Lesson, Seen, Text, Touch

__all__ = ["LESSONS"]

_IN_A_CALL: Final = {"queues": 2, "rate": 3, "work": "1s", "life": "4m"}  # c1 is always in a call
_FEW: Final = {"queues": 2, "rate": 2}  # the story of the page is bounded
_STOPPED: Final = (Touch("stall c1"), Touch("go-on c1", 150_000))


def _c2_came_late(seen: Seen) -> bool:
    return set(seen.one.owners) == {"c2"} and min(seen.one.changes(), default=0) > 100_000


def _overlaps(seen: Seen) -> bool:
    return bool(seen.one.wrongs)


def _only_one_mode_is_wrong(seen: Seen) -> bool:
    return bool(seen.sides["faithful"].wrongs) and not seen.sides["fenced"].wrongs


def _handled_again(seen: Seen) -> bool:
    return bool(seen.one.handled("c1") & seen.one.handled("c2"))


def _waited_for_a_rebalance(seen: Seen) -> bool:
    return "c2" in seen.one.owners and min(seen.one.changes(), default=0) > 15_000


def _asked_again(seen: Seen) -> bool:
    side = seen.one
    return side.owners == ["c1", "c1", "c2", "c2"] and all(
        queue["lock"]["renewed_ms"] >= side.touched_ms + 5_000 for queue in side.queues
    )


LESSONS: Final = (
    Lesson(
        key="silent",
        section="3/heartbeats",
        title=Text("A member that is silent", "沉默的成员"),
        watch=Text(
            "Two members with one queue each. Members also send heartbeats: they tell the broker that they live.",
            "两个成员各有一个队列。成员还会发送心跳，告诉 Broker 自己还活着。",
        ),
        question=Text(
            "The process of c1 is stopped. It is not dead, and its connections stay open. When does c2 get its queue?",
            "c1 的进程被暂停。它没有死，连接也还在。c2 什么时候得到它的队列？",
        ),
        choices=(
            Text("When its ring has run out, after 60 s", "圆环走完之后，即 60 s 后"),
            Text("When heartbeats have been missing for 120 s", "心跳缺失 120 s 之后"),
            Text("Never", "永远不会"),
        ),
        right=1,
        do=Text("Click c1: stop it, as by SIGSTOP.", "点击 c1：暂停进程（SIGSTOP）。"),
        touches=(Touch("stall c1"),),
        show_ms=140_000,
        setup=_IN_A_CALL,
        answer=Text(
            "c2 asks for a lock only if the rebalance gives it the queue. For this c1 must be out of the group, "
            "and a "
            "silent member counts for 120 s. For a minute the queue had no lock, and nobody asked for it.",
            "只有重平衡把队列分给 c2，它才会请求锁。为此 c1 必须离开消费组，而沉默的成员要过 120 s 才不算数。"
            "有一分钟队列没有锁，也没有成员请求。",
        ),
        shown=_c2_came_late,
    ),
    Lesson(
        key="zombie",
        section="2/summary",
        title=Text("Two owners", "两个持有者"),
        watch=Text(
            "c1 is always inside a call of its listener, which takes a second.",
            "c1 总是在监听器的调用之中，每次调用用一秒。",
        ),
        question=Text(
            "c1 is stopped inside a call. c2 takes its queue over. Then c1 goes on. What does it do first?",
            "c1 在一次调用中被暂停。c2 接管它的队列。然后 c1 继续运行。它首先做什么？",
        ),
        choices=(
            Text("It asks whether the queue is still its own", "询问队列是否还属于自己"),
            Text("It goes on with its call", "继续完成那次调用"),
            Text("It starts anew", "重新启动"),
        ),
        right=1,
        do=Text(
            "Click c1: stop it, as by SIGSTOP. 150 s later, when c2 has its queue, let c1 go on.",
            "点击 c1：暂停进程（SIGSTOP）。150 s 之后，当 c2 得到它的队列时，让 c1 继续。",
        ),
        touches=_STOPPED,
        show_ms=10_000,
        setup=_IN_A_CALL,
        answer=Text(
            "c1 does not know that it stood still. Its call ends while c2 works on the same queue: two owners at "
            "once. "
            "None of the three locks is asked at the end of a call. The judge marks it.",
            "c1 不知道自己停过。它的调用结束时，c2 正在处理同一个队列：同时有两个持有者。调用结束时，"
            "三把锁都不会被询问。裁判标出了这一点。",
        ),
        shown=_overlaps,
    ),
    Lesson(
        key="fence",
        section="4/3",
        title=Text("What a fenced lock changes", "带纪元的锁改变了什么"),
        watch=Text(
            "The same plan twice: with RocketMQ's lock, and with a fenced one. That has a number, its epoch.",
            "同一个计划运行两次：一次用 RocketMQ 的锁，一次用带纪元的锁，它有一个编号，即纪元。",
        ),
        question=Text(
            "c1 is stopped again, and goes on when c2 has its queue. What is different with the fenced lock?",
            "c1 再次被暂停，在 c2 得到它的队列之后继续。用带纪元的锁有什么不同？",
        ),
        choices=(
            Text("c1 cannot be stopped there", "在那里 c1 不会被暂停"),
            Text("c2 never gets the queue", "c2 得不到队列"),
            Text("What c1 sends late is refused", "c1 迟到的请求被拒绝"),
        ),
        right=2,
        do=Text(
            "Click c1: stop it, as by SIGSTOP. 150 s later let it go on.",
            "点击 c1：暂停进程（SIGSTOP）。150 s 之后让它继续。",
        ),
        touches=_STOPPED,
        show_ms=10_000,
        setup=_IN_A_CALL,
        modes=("faithful", "fenced"),
        answer=Text(
            "Each new owner gets a higher epoch. The broker refuses pulls and commits with an old one, and your "
            "database "
            "can refuse writes in the same way. The queue changes hands sooner, too: after 60 s, not 120 s.",
            "每个新的持有者得到更大的纪元。Broker 拒绝带旧纪元的拉取和提交，你的数据库也可以这样拒绝写入。"
            "队列换手也更早：60 s，而不是 120 s。",
        ),
        shown=_only_one_mode_is_wrong,
    ),
    Lesson(
        key="again",
        section="3/committing-offsets",
        title=Text("Handled twice", "处理两次"),
        watch=Text(
            "The mark in a queue is its stored offset. A member handles messages at once, and stores the offset "
            "every 5 s.",
            "队列中的标记是已存储的位点。成员立即处理消息，但每 5 s 才存一次位点。",
        ),
        question=Text(
            "c1 is killed between two commits. Where in the queue does c2 begin?",
            "c1 在两次提交之间被杀死。c2 从队列的哪里开始？",
        ),
        choices=(
            Text("Behind the last message that c1 handled", "c1 处理的最后一条消息之后"),
            Text("At the stored offset", "已存储的位点"),
            Text("At the end of the queue", "队列的末尾"),
        ),
        right=1,
        do=Text("Click c1: kill the process.", "点击 c1：杀死进程。"),
        touches=(Touch("kill c1"),),
        show_ms=85_000,
        setup=_FEW,
        watch_ms=44_000,
        answer=Text(
            "c2 knows the stored offset only. What c1 handled after its last commit is handled again: at least "
            "once, not "
            "exactly once. The order is kept. A listener must bear such repeats.",
            "c2 只知道已存储的位点。c1 在最后一次提交之后处理的消息会再处理一次：至少一次，而不是恰好一次。"
            "顺序不变。监听器必须能承受重复。",
        ),
        shown=_handled_again,
    ),
    Lesson(
        key="joins",
        section="1/2.2.3",
        title=Text("A member comes back", "成员回来"),
        watch=Text(
            "c2 was shut down after 10 s, and c1 took its queues over at once. It has all four now.",
            "c2 在 10 s 时关闭，c1 立即接管了它的队列。现在四个队列都归 c1。",
        ),
        question=Text("c2 starts again. When does it get its first queue?", "c2 再次启动。它什么时候得到第一个队列？"),
        choices=(
            Text("At once", "立即"),
            Text("At a later rebalance, 20 s or 40 s later", "在之后的重平衡时，20 s 或 40 s 后"),
            Text("When a ring has run out, after 60 s", "圆环走完之后，即 60 s 后"),
        ),
        right=1,
        do=Text("Click c2: start it.", "点击 c2：启动。"),
        touches=(Touch("start c2"),),
        show_ms=45_000,
        setup={"work": "1s"},  # c1 is in calls when c2 comes
        faults=("leave c2@10s",),
        answer=Text(
            "c2 asks when it starts, and is refused: c1 still has the locks. The broker tells c1, which unlocks two "
            "queues when no call runs on them. c2 asks again every 20 s. Meanwhile nobody handles them.",
            "c2 启动时请求锁，被拒绝，因为锁还在 c1 手中。Broker 通知 c1，它在没有调用运行时释放两个队列。"
            "c2 每 20 s 再请求一次。这期间没有成员处理它们。",
        ),
        shown=_waited_for_a_rebalance,
    ),
    Lesson(
        key="restart",
        section="3/pull-service",
        title=Text("The broker forgets", "Broker 忘记了锁"),
        watch=Text(
            "Messages and offsets are on the broker's disk. RocketMQ's table of locks is in its memory.",
            "消息和位点在 Broker 的磁盘上。RocketMQ 的锁表在内存中。",
        ),
        question=Text(
            "The broker is shut down, and starts again 5 s later. Who owns the queues afterwards?",
            "Broker 关闭，5 s 后再次启动。之后队列归谁？",
        ),
        choices=(
            Text("Nobody for 60 s", "60 s 之内没有持有者"),
            Text("The same members: they ask again", "还是原来的成员：它们再次请求"),
            Text("c1 has all", "全部归 c1"),
        ),
        right=1,
        do=Text("Click the broker: shut it down. 5 s later start it.", "点击 Broker：正常关闭。5 s 之后启动它。"),
        touches=(Touch("leave broker"), Touch("start broker", 5_000)),
        show_ms=8_000,
        setup={"store": "sync"},
        answer=Text(
            "The table begins empty. Each member comes back and asks for the queues that it has, and nobody else "
            "holds "
            "them. If another one asked first, it would get them. A fenced broker keeps its table on the disk.",
            "锁表从空开始。每个成员回来请求自己手中的队列，而没有别的成员持有它们。如果别的成员先请求，"
            "就会得到它们。带纪元的 Broker 把锁表存在磁盘上。",
        ),
        shown=_asked_again,
    ),
)
