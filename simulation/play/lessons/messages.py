"""Lessons about messages: their queue, one that fails, and what is lost and won without order."""

from typing import Final

from lockstep.simulation.play.lessons.lesson import Lesson, Seen, Text, Touch

__all__ = ["LESSONS"]

_THREE: Final = 3  # messages of one key


def _all_in_one_queue(seen: Seen) -> bool:
    return [queue["max"] for queue in seen.one.queues if queue["max"]] == [_THREE]


def _those_behind_wait(seen: Seen) -> bool:
    side = seen.one
    return all(queue["cached"] > 8 for queue in side.held("c1")) and all(
        queue["cached"] < 3 for queue in side.held("c2")
    )


def _c2_has_them(seen: Seen) -> bool:
    return any(one["owner"] == "c2" and 1 in one["offsets"] for one in seen.one.deliveries)


def _one_is_left(seen: Seen) -> bool:
    side = seen.one
    return [queue["cached"] for queue in side.held("A")] == [1] and side.queues[0]["max"] > side.queues[0]["committed"]


LESSONS: Final = (
    Lesson(
        key="key",
        section="1/2.1",
        title=Text("One key, one queue", "一个键，一个队列"),
        watch=Text(
            "Four queues, and no message yet. The key of a message, such as the number of an order, is its colour.",
            "四个队列，还没有消息。消息的键，例如订单号，就是它的颜色。",
        ),
        question=Text(
            "Three messages of key3 are sent one after the other. Which queues do they go to?",
            "依次发送三条 key3 的消息。它们进入哪些队列？",
        ),
        choices=(
            Text("Three queues, in turn", "轮流进入三个队列"),
            Text("All to one queue", "全部进入一个队列"),
            Text("Those that are free", "空闲的队列"),
        ),
        right=1,
        do=Text(
            "Click the producer: send a message with key3. Do it three times.",
            "点击生产者：发送键为 key3 的消息。做三次。",
        ),
        touches=(Touch("send producer=key3"), Touch("send producer=key3", 1_000), Touch("send producer=key3", 2_000)),
        show_ms=2_000,
        setup={"rate": 0},
        watch_ms=25_000,
        answer=Text(
            "The hash of the key chooses the queue. A queue keeps the order of its messages, and its owner "
            "handles them "
            "one by one: so the three stay in order. Other keys, in other queues, need not wait.",
            "键的哈希决定队列。队列保持消息的先后，持有者逐条处理，所以这三条消息有序。其他队列中的键不必等待。",
        ),
        shown=_all_in_one_queue,
    ),
    Lesson(
        key="suspend",
        section="1/2.2.7",
        title=Text("One failure holds up a queue", "一条失败，整队等待"),
        watch=Text(
            "c1 and c2 have a queue each, and handle what comes at once.",
            "c1 和 c2 各有一个队列，消息一到就处理。",
        ),
        question=Text(
            "The listener of c1 fails from now on. What happens to the messages behind the first that failed?",
            "c1 的监听器从现在起失败。第一条失败的消息后面的那些会怎样？",
        ),
        choices=(
            Text("They are handled, and the failed one comes later", "先处理它们，失败的那条以后再来"),
            Text("They wait", "它们等待"),
            Text("They go to c2", "它们交给 c2"),
        ),
        right=1,
        do=Text("Click c1: let its listener fail.", "点击 c1：让监听器失败。"),
        touches=(Touch("fail-listener c1"),),
        show_ms=15_000,
        setup={"queues": 2},
        answer=Text(
            "An ordered queue passes by no message. It is suspended for a second, and the same message comes "
            "again, until "
            "it succeeds. All behind it wait. The queue of c2 goes on.",
            "有序的队列不会越过任何消息。它挂起一秒，同一条消息再来，直到成功。后面的全部等待。c2 的队列照常进行。",
        ),
        shown=_those_behind_wait,
    ),
    Lesson(
        key="concurrent",
        section="4/4.1",
        title=Text("Without order", "不要顺序"),
        watch=Text(
            "A consumes without order: no lock, and several calls at once. Five messages come at 8 s, and '1' "
            "takes 4 s.",
            "A 不按顺序消费：没有锁，同时有几个调用。8 s 时来五条消息，其中 '1' 要处理 4 s。",
        ),
        question=Text(
            "Which messages are done half a second later, and which offset may be stored?",
            "半秒之后哪些消息已完成？可以存储哪个位点？",
        ),
        choices=(
            Text("'0' alone; offset 1", "只有 '0'；位点 1"),
            Text("All but '1'; offset 1", "除 '1' 以外全部；位点 1"),
            Text("All but '1'; offset 5", "除 '1' 以外全部；位点 5"),
        ),
        right=1,
        show_ms=2_500,
        what="article/4/4.1",
        watch_ms=7_500,
        answer=Text(
            "A slow message holds up no other, and a key may overtake itself. The offset stays before '1': whoever "
            "comes after a crash begins there, and handles three messages again. Order costs speed; this costs "
            "order.",
            "慢的消息不挡别的消息，但同一个键也可能乱序。位点停在 '1' 之前：崩溃之后的成员从那里开始，"
            "再处理三条消息。顺序以速度为代价，这里则以顺序为代价。",
        ),
        shown=_one_is_left,
    ),
    Lesson(
        key="fifo",
        section="",
        title=Text("RocketMQ 5: no lock, deliveries", "RocketMQ 5：没有锁，只有投递"),
        watch=Text(
            "A FIFO group with three members, and one queue. Nobody owns it: c1 has messages, and their rings run.",
            "一个 FIFO 消费组，三个成员，一个队列。没有持有者：c1 得到了消息，它们的圆环在走。",
        ),
        question=Text(
            "c1 does not answer. When does another member get messages of this queue?",
            "c1 没有应答。别的成员什么时候得到这个队列的消息？",
        ),
        choices=(
            Text("At once: those behind", "立即得到后面的消息"),
            Text("When the rings have run out: the same ones", "圆环走完之后，得到同样的消息"),
            Text("When c1 has left", "c1 离开之后"),
        ),
        right=1,
        show_ms=7_000,
        what="worlds/fifo",
        seed=7,
        watch_ms=9_500,
        answer=Text(
            "Messages under way are invisible for a time, here 15 s, and hold up all behind them. A member that is "
            "slow renews this time; if not, others get the same messages. Then no queue waits for a dead owner's lock.",
            "投递中的消息在一段时间内不可见，这里是 15 s，后面的消息都要等。慢的成员会延长这段时间；"
            "否则同样的消息交给别的成员。队列不用等死去的持有者的锁。",
        ),
        shown=_c2_has_them,
    ),
)
