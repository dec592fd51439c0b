"""SQL92 filters: the language, compared with the answers of RocketMQ's filter (wire.md 6.5)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.broker.messages.sql.parser import compile_sql
from lockstep.protocol.filter import FilterError
from tests.rows import by_row

RECORDED = json.loads((Path(__file__).parents[2] / "vectors" / "sql-4.9.7.json").read_text("utf-8"))
PROPERTIES: list[dict[str, str]] = RECORDED["properties"]
ANSWERS: dict[str, str] = RECORDED["answers"]
LETTERS = {True: "T", False: "F", None: "N"}
FLIGHT = {"size": "5", "color": "red", "price": "2.5", "late": "true"}


def test_every_recorded_expression_is_answered_alike() -> None:
    """Refused where RocketMQ's parser refuses; else the same answer for each message. An evaluation that fails is
    unknown."""
    wrong = {}
    for expression, theirs in ANSWERS.items():
        try:
            evaluate = compile_sql(expression)
        except FilterError:
            ours = "refused"
        else:
            ours = "".join(LETTERS[evaluate(properties)] for properties in PROPERTIES)
        if ours != (theirs if theirs == "refused" else theirs.replace("E", "N")):
            wrong[expression] = (ours, theirs)
    assert not wrong
    kinds = set("".join(answers for answers in ANSWERS.values() if answers != "refused"))
    assert kinds == set("TFNE"), "or the recording shows nothing"


@by_row(
    "expression, answer",
    [
        ("size = 5", True),
        ("size <> 5", False),
        ("size > 4 AND size >= 5 AND size < 6 AND size <= 5", True),
        ("price BETWEEN 2.5 AND 3", None),  # "2.5" beside the whole number 3 is no number
        ("price BETWEEN 2.5 AND 3.0", True),
        ("size NOT BETWEEN 1 AND 4", True),
        ("color IN ('blue', 'red')", True),
        ("color NOT IN ('blue', 'red')", False),
        ("weight IN ('1')", None),
        ("weight IS NULL AND color IS NOT NULL", True),
        ("late = TRUE", True),
        ("late", False),  # a property alone is never true
        ("NOT late", True),
        ("weight > 1 OR TRUE", True),
        ("weight > 1 AND TRUE", None),
        ("weight > 1 AND FALSE", False),
        ("NOT weight > 1", "has no order"),
        ("NOT (weight > 1)", None),
        ("NOT (color > 1)", None),  # no answer stays no answer under NOT
        ("color = 'it''s'", False),
        ("COLOR = 'red'", None),
        ("color = 'red' or size = 9 and size = 8", True),
        ("color = 'red' -- and so on", True),
        ("color -- the paint's\n = /* **/ 'red'", True),
        ("size > -3", True),
    ],
)
def test_what_an_expression_means(expression: str, answer: bool | str | None) -> None:
    """Three answers: true, false and unknown; a message is delivered for the first alone."""
    if isinstance(answer, str):
        with pytest.raises(FilterError, match=answer):
            compile_sql(expression)
    else:
        assert compile_sql(expression)(FLIGHT) is answer


@by_row(
    "expression, reason",
    [
        ("", "the expression ends where"),
        ("size >", "the expression ends where"),
        ("(size > 1", "the expression ends where"),
        ("size = = 1", "at character 8: unexpected '='"),
        ("size == 1", "at character 7: unexpected '='"),
        ("size != 1", "at character 6: unexpected '!='"),
        ('color = "red"', "at character 9"),
        ("color LIKE 'r%'", "at character 7: unexpected 'LIKE'"),
        ("color CONTAINS 'r'", "at character 7: unexpected 'CONTAINS'"),
        ("size > 1)", r"at character 9: unexpected '\)'"),
        ("size > 1 color = 'red'", "at character 10: unexpected 'color'"),
        ("size + 1 > 2", r"at character 6: unexpected '\+'"),
        ("size IN (1, 2)", "at character 10"),
        ("size IN ()", "at character 10"),
        ("color > 'a'", "'a' has no order: only numbers and properties may stand beside >"),
        ("late > TRUE", "TRUE has no order"),
        ("color BETWEEN 'a' AND 'b'", "'a' has no order"),
        ("size BETWEEN 3 AND 1", "nothing is between 3 and 1"),
        ("size = NULL", "write IS NULL"),
        ("TRUE = 1", "TRUE cannot be compared with 1"),
        ("5", "5 is no condition"),
        ("'red' AND TRUE", "'red' is no condition"),
        ("5 IN ('5')", "only a property can be IN a list, not 5"),
        ("size = 9223372036854775808", "above 9223372036854775807"),
        ("size > 0.0", "'0.0' is out of range"),
        ("size > 1e400", "'1e400' is out of range"),
        ("größe > 1", "at character 3: unexpected 'öße'"),
    ],
)
def test_what_is_no_expression(expression: str, reason: str) -> None:
    """The error names place and reason. Text after a whole expression is refused; RocketMQ ignores it."""
    with pytest.raises(FilterError, match=reason):
        compile_sql(expression)


def test_depth_is_bounded_and_length_is_not() -> None:
    """Brackets are free; an expression that nests calls too deep is refused; long lists and chains are not."""
    assert compile_sql("(" * 5000 + "size = 5" + ")" * 5000)(FLIGHT) is True
    assert compile_sql(" OR ".join(f"size = {i}" for i in range(1000)))(FLIGHT) is True
    assert compile_sql("NOT " * 198 + "late")(FLIGHT) is False
    for deep in ("NOT " * 199 + "late", "size" + " = 5" * 200, "- " * 199 + "5 = size"):
        with pytest.raises(FilterError, match="nested more than 200 deep"):
            compile_sql(deep)


def test_signs_that_could_begin_comments_are_bounded() -> None:
    """Each would have the rest of the line looked at: 8192 of them kept a broker for two seconds."""
    assert compile_sql("size = " + "--" * 99 + "5")(FLIGHT) is True
    assert compile_sql("size = 5 " + "--" * 4000 + "\n")(FLIGHT) is True
    for dashes in ("-" * 8192, "size = 5\n AND size = " + "--" * 201 + "5"):
        with pytest.raises(FilterError, match="the last line has '--' more than 200 times"):
            compile_sql(dashes)


def test_a_broker_without_such_filters_loads_no_parser() -> None:
    """Its start imports neither lark nor modules that need it."""
    program = (
        "import sys, lockstep.broker.__main__, lockstep.broker.fronts.remoting.dispatch; "
        "sys.exit(any(name == 'lark' or name.startswith('lockstep.broker.messages.sql') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
