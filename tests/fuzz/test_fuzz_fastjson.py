"""fastjson's dialect, lawful and broken: what is read, and that nothing but ValueError comes of the rest."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.bodies.fastjson import ObjectKeyed, dump_canonical, dumps, loads
from lockstep.protocol.bodies.fastjson_refs import VISITS_MAX
from tests.fuzz.strategies import fuzz, texts, with_bytes_changed
from tests.rows import by_row

_tame = texts.filter(lambda text: text != "$ref")
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | _tame,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_tame | st.integers(-99, 99).map(str), inner, max_size=3)
    ),
    max_leaves=10,
)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value in some spelling of the dialect."""
    blank = draw(st.sampled_from(["", "", " ", "\n\t"]))
    comma = draw(st.sampled_from([",", ",", " ,", ",,", ", "]))
    tail = draw(st.sampled_from(["", ",", " , "]))
    if isinstance(value, dict):
        pairs = [draw(_name(name)) + blank + ":" + blank + draw(written(inner)) for name, inner in value.items()]
        return "{" + blank + comma.join(pairs) + (tail if pairs else "") + blank + "}"
    if isinstance(value, list):
        return "[" + blank + comma.join([draw(written(inner)) for inner in value]) + tail + blank + "]"
    return draw(_quoted(value)) if isinstance(value, str) else json.dumps(value)


@st.composite
def _name(draw: st.DrawFn, name: str) -> str:
    bare = name.isascii() and name.replace("-", "").isalnum()
    return name if bare and draw(st.booleans()) else draw(_quoted(name))


@st.composite
def _quoted(draw: st.DrawFn, text: str) -> str:
    double = json.dumps(text, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        return double
    return "'" + double[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


dialect = _values.flatmap(lambda value: st.tuples(st.just(value), written(value)))


@fuzz
@given(dialect)
def test_every_spelling_is_the_value(pair: tuple[Any, str]) -> None:
    """Quotes of either kind or none, commas too many and blanks anywhere: the value is the same."""
    value, text = pair
    assert loads(text.encode()) == value


@fuzz
@given(st.dictionaries(st.dictionaries(_tame, _values, max_size=2).map(dump_canonical), _values, max_size=3))
def test_objects_that_are_names(entries: dict[str, Any]) -> None:
    """A map with objects as names is read as it was written, however deep it stands."""
    wire = {"table": ObjectKeyed(entries), "list": [ObjectKeyed({"{}": ObjectKeyed(entries)})]}
    assert loads(dumps(wire).encode()) == {"table": entries, "list": [{"{}": entries}]}


def walk(value: Any, visits_max: int) -> int:
    """Visits everything, following references, to the depth that bodies have; counts no further than the limit."""
    visits, level = 0, [value]
    for _ in range(4):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        visits += len(level)
        assert visits <= visits_max
    return visits


_steps = st.sampled_from([".a", ".b", ".c", "[0]", "[1]", "['a']", "[9]", ".", "[", ".\\a", "x"])
_paths = st.sampled_from(["$", "@", "..", "", "$.a", "$.a[0]"]) | st.lists(_steps, max_size=3).map(
    lambda steps: "$" + "".join(steps)
)
_with_references = st.recursive(
    st.integers(0, 9) | _paths.map(lambda path: {"$ref": path}),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@fuzz
@given(_with_references)
def test_any_references(value: Any) -> None:
    """References anywhere, to anything, end in a value that can be walked, or in a ValueError."""
    try:
        read = loads(json.dumps(value).encode())
    except ValueError:
        return
    walk(read, 4 * VISITS_MAX)


@fuzz
@given(
    with_bytes_changed(dialect.map(lambda pair: pair[1].encode()))
    | st.lists(st.sampled_from([*"{}[]:,'\"\\ 01-.ea$", "$ref", "null", '{"$ref":"', "\\u", "d8"])).map(
        lambda parts: "".join(parts).encode()
    )
)
def test_any_bytes(data: bytes) -> None:
    """Whatever comes is read, or is a ValueError."""
    try:
        loads(data)
    except ValueError:
        pass


@pytest.mark.timeout(20)
@by_row("unit", ["{{", "{'", "'\\", "{a:", "{{a:1}:", "[,", "[1,", "'a',", "{a:'", "[[", '{"$ref":'])
def test_no_text_makes_the_reader_slow(unit: str) -> None:
    """Half a megabyte of anything is read or refused at once."""
    for start in ("", "{", "[", "{x:["):
        try:
            loads((start + unit * (500_000 // len(unit))).encode())
        except (ValueError, RecursionError):
            pass


@pytest.mark.timeout(20)
def test_references_cannot_make_much_of_little() -> None:
    """A list of lists of lists of references would be a billion members; a body of that kind is refused."""
    level = [f'"l0":[{",".join(["1"] * 1000)}]']
    for depth in range(1, 4):
        reference = f'{{"$ref":"$.l{depth - 1}"}}'
        level.append(f'"l{depth}":[{",".join([reference] * 1000)}]')
    with pytest.raises(ValueError, match="beyond measure"):
        loads(("{" + ",".join(level) + "}").encode())
    endless = ",".join(['{"$ref":"$"}'] * 100)
    with pytest.raises(ValueError, match="beyond measure"):
        loads(f'{{"a":[{endless}]}}'.encode())
