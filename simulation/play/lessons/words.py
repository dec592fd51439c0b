"""What the panel of lessons says around them."""

from typing import Final

from lockstep.simulation.play.lessons.lesson import Text

__all__ = ["WORDS"]

WORDS: Final = {
    "count": Text("Lessons: {done} of {count} done", "课程：已完成 {done} / {count}"),
    "done": Text("done", "已完成"),
    "place": Text("Lesson {number} of {count}", "第 {number} 课，共 {count} 课"),
    "list": Text("All lessons", "全部课程"),
    "watch": Text("Watch: ", "观察："),
    "skip": Text("To the question", "到问题"),
    "question": Text("What do you think?", "你怎么看？"),
    "touch": Text("See for yourself: ", "亲自看看："),
    "show": Text("Show me", "演示给我看"),
    "showing": Text("The run goes on until the answer is seen.", "运行继续，直到看见答案。"),
    "right": Text("Right: {choice}.", "正确：{choice}。"),
    "wrong": Text("You thought: {chosen}. It is: {choice}.", "你的回答：{chosen}。实际是：{choice}。"),
    "missing": Text(
        "In this run it did not happen. Try again, or let it be shown.", "这次运行中没有发生。请重试，或看演示。"
    ),
    "again": Text("Once more", "再来一次"),
    "next": Text("Next lesson", "下一课"),
}
