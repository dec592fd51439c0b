"""What a run tells can be told in Chinese: each template with the same values, each phrase that a table has."""

import ast
from importlib import import_module
from importlib.resources import files

import pytest

from lockstep.order import Kind
from lockstep.simulation.lab.event_texts import EVENT_TEXTS
from lockstep.simulation.lab.faults.of_worlds import OF_WORLDS
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.log_sentences import queue_numbers
from lockstep.simulation.lab.said import fields_of, say, told
from lockstep.simulation.play.page.chinese import CHINESE, in_language
from lockstep.simulation.play.record_words import WORDS
from lockstep.simulation.play.telling import OF_HOST, UNSENT

_TELL = {
    "lab": ("log_sentences", "recorded_cluster"), "lab.faults": ("words",),
    "play": ("record_words", "scene", "telling", "verdict"),
}  # fmt: skip


def _said_in(folder: str, module: str) -> set[str]:
    """The templates that a module gives to `say`, at once or as `words`, and what it tells of an act."""
    tree = ast.parse(files(import_module(f"lockstep.simulation.{folder}")).joinpath(f"{module}.py").read_text("utf-8"))
    given: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            given += node.args[:1] if name == "say" else node.args[1:] if name == "on_act" else []
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "words":
            given.append(node.value)
    texts = (one for expr in given for one in _constants(expr))
    return set(texts)


def _constants(expr: ast.expr) -> list[str]:
    if isinstance(expr, ast.IfExp):
        return [*_constants(expr.body), *_constants(expr.orelse)]
    return [expr.value] if isinstance(expr, ast.Constant) and isinstance(expr.value, str) else []


def _templates() -> set[str]:
    tables = {
        *(row.play or row.run for row in EVENT_TEXTS.values()), *OF_HOST.values(), *UNSENT.values(), *WORDS.values(),
        *(fault.summary for fault in FAULTS.values()), *(fault.did for fault in OF_WORLDS.values()),
        *(f"kind {kind}" for kind in (*Kind, *Wrong)),
    }  # fmt: skip
    said = {text for folder, modules in _TELL.items() for module in modules for text in _said_in(folder, module)}
    assert {"{some}, {more}", "{who} renew their locks.", "No byte passes.", "is killed"} & said
    return (tables | said) - {""}


@pytest.mark.parametrize("template", sorted(_templates()))
def test_all_that_is_told_is_chinese(template: str) -> None:
    assert template in CHINESE


@pytest.mark.parametrize("template", sorted(CHINESE))
def test_both_have_the_same_values(template: str) -> None:
    assert set(fields_of(CHINESE[template])) == set(fields_of(template))


def test_a_scene_in_both_languages() -> None:
    queues = queue_numbers({"broker:0", "broker:1", "broker:2", "broker:3"}, ":")
    some = queue_numbers({"broker:0", "broker:2", "broker:5"}, ":")
    lasting = {"fault": "partition", **told("No byte passes.")}
    wrong = {
        "at_ms": 1,
        "text": "a sentence",
        "said": "kind overlap",
        "records": [told(say("{first} to {last}", first=1, last=4))],
    }
    side = {
        "story": [told(say("{who} locks {queues}.", who="c1", queues=one)) for one in (queues, some)],
        "hosts": [{"name": "c1", "lasting": [lasting]}],
        "wrongs": [wrong],
        "queues": [1],
    }

    english = in_language({"run": 1, "sides": [side]}, "en")
    chinese = in_language({"run": 1, "sides": [side]}, "zh")

    assert "said" not in str(english)
    assert "said" not in str(chinese)
    assert english["sides"][0]["story"] == [
        {"text": "c1 locks queues 0 to 3."},
        {"text": "c1 locks queues 0, 2 and 5."},
    ]
    assert chinese["sides"][0]["story"] == [{"text": "c1 锁定队列 0 到 3。"}, {"text": "c1 锁定队列 0、2 和 5。"}]
    assert chinese["sides"][0]["hosts"][0]["lasting"][0]["text"] == "没有字节通过。"
    assert chinese["sides"][0]["wrongs"][0]["text"] == CHINESE["kind overlap"]
    assert chinese["sides"][0]["wrongs"][0]["records"] == [{"text": "1 到 4"}]
    assert chinese["sides"][0]["queues"] == [1]
