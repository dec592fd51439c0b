"""Whatever an SQL92 expression is, it is refused with a short reason, or it answers every message."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.messages.sql.parser import compile_sql
from lockstep.protocol.filter import FilterError
from tests.fuzz.strategies import fuzz

WORDS = (
    "a", "b", "NOT", "and", "Or", "BETWEEN", "in", "IS", "null", "TRUE", "false", "=", "<>", ">", ">=", "<", "<=", "(",
    ")", ",", "+", "-", "--", "/*", "*/", "\n", "'", "''", "'x'", "'1'", "0", "1", "01", "2L", "1.5", ".5", "1e400",
    "99999999999999999999", "0.0", "a1", "$", "_", ";", "%", "\u4e2d", "\x00", " ",
)  # fmt: skip
VALUES = st.sampled_from(
    ["", "1", "1.5", "x", "true", "NaN", "-Infinity", "0x1p3", "\u0661", "1" * 5000, "-0.0", " 7 "]
)
MESSAGES = st.dictionaries(st.sampled_from(["a", "b", "a1"]), VALUES)

# Expressions that are whole: what stands in brackets goes anywhere.
operands = st.sampled_from(["a", "b", "1", "- 1", "2.5", "'x'", "TRUE", "NULL"])
conditions = st.recursive(
    st.builds("{} {} {}".format, operands, st.sampled_from(["=", "<>", ">", ">=", "<", "<="]), operands)
    | st.builds("{} IS NOT NULL".format, operands)
    | st.builds("{} BETWEEN {} AND {}".format, operands, operands, operands)
    | st.builds("{} NOT IN ('x', '1')".format, operands),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR", "=", "<>"]), inner)
        | st.builds("NOT ({})".format, inner)
    ),
)


def judge(expression: str, properties: dict[str, str]) -> bool:
    """Was it taken? Fails when it did anything but refuse or answer."""
    try:
        evaluate = compile_sql(expression)
    except FilterError as error:
        reason = str(error)
    else:
        reason = ""
        assert evaluate(properties) in (True, False, None)
        assert evaluate(properties) is evaluate(dict(properties)), "the same message has the same answer"
    assert len(reason) < 300, "it becomes a remark and a log line"
    return not reason


@fuzz
@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join), MESSAGES)
def test_any_text_is_refused_or_answers(expression: str, properties: dict[str, str]) -> None:
    """No text makes the parser fail in a way of its own."""
    judge(expression, properties)


@fuzz
@given(conditions, MESSAGES)
def test_any_condition_is_refused_or_answers(expression: str, properties: dict[str, str]) -> None:
    """Types that do not go together are refused or unknown; two NOTs change nothing."""
    if judge(expression, properties):
        twice = compile_sql(f"NOT (NOT ({expression}))")
        assert twice(properties) is compile_sql(expression)(properties)


def test_the_judge_sees_what_is_taken() -> None:
    """The strategies above make both kinds."""
    assert judge("(a = 1 AND b IS NOT NULL)", {})
    assert not judge("a = = 1", {})
