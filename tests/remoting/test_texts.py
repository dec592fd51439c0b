"""Texts for people."""

from lockstep.remoting.texts import known_names

MANY = [f"worlds/{name}" for name in ("goings", "stops", "restarts", "power", "links", "resets", "threads", "sends")]
MANY += ["takeover", "zombie", "Anything"]


def test_few_names_are_all_told() -> None:
    """As they were given."""
    assert known_names("x", ["b", "a"]) == "there are b, a"
    assert known_names("x", [], begin="known are") == "known are none"


def test_of_many_names_the_nearest_are_told() -> None:
    """And what lists all. Small and capital letters are alike."""
    assert known_names("takeove", MANY, "`list`") == "did you mean takeover? `list` lists all"
    assert known_names("anythng", MANY, "`list`") == "did you mean Anything? `list` lists all"
    assert known_names("world/sends", MANY).startswith("did you mean worlds/sends")


def test_where_none_is_near_some_are_told() -> None:
    """Unless there is a place that lists all."""
    assert known_names("qqq", MANY, "`list`") == "`list` lists all"
    assert known_names("qqq", MANY) == "there are 11, such as worlds/goings, worlds/stops, worlds/restarts"
