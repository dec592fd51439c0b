"""Reads what fastjson writes, which is not always JSON (wire.md 1.5), without a line of the code under test.

Integer keys may stand unquoted, a key may be an object, an object may be `{"$ref":"$.a[0].b"}`. An object whose keys
are objects becomes a dict keyed by their members in alphabetical order, as JSON text.
"""

import json
import re
from typing import Any

__all__ = ["NotJson", "read_json"]

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"[-+.\w]+")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_CONSTANTS = {"true": True, "false": False, "null": None}


class NotJson(ValueError):
    """The text is none; says where."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def take(self, character: str) -> bool:
        if self.peek() != character:
            return False
        self.at += 1
        return True

    def expect(self, character: str) -> None:
        if not self.take(character):
            raise NotJson(f"{character!r} expected at {self.at} of {self.text[:200]!r}")

    def value(self) -> Any:
        match self.peek():
            case "{":
                return self.object()
            case "[":
                return self.list()
            case '"':
                return self.matched(_STRING, json.loads)
            case _:
                return self.matched(_WORD, _constant)

    def matched(self, pattern: re.Pattern[str], read: Any) -> Any:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise NotJson(f"no value at {self.at} of {self.text[:200]!r}")
        self.at = found.end()
        return read(found[0])

    def object(self) -> dict[str, Any]:
        self.expect("{")
        result: dict[str, Any] = {}
        while self.peek() != "}":
            key = self.value()
            self.expect(":")
            result[_key_text(key)] = self.value()
            if not self.take(","):
                break
        self.expect("}")
        return result

    def list(self) -> list[Any]:
        self.expect("[")
        result = []
        while self.peek() != "]":
            result.append(self.value())
            if not self.take(","):
                break
        self.expect("]")
        return result


def _constant(word: str) -> Any:
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    try:
        return float(word) if re.search(r"[.eE]", word) else int(word)
    except ValueError:
        raise NotJson(f"{word!r} is no value") from None


def _key_text(key: Any) -> str:
    """A key that is an object, or text that holds one, is written in one form."""
    if isinstance(key, str) and key.startswith("{"):
        key = read_json(key)
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True)


def read_json(text: str) -> Any:
    """The value, with references resolved. Raises NotJson."""
    reader = _Reader(text)
    root = reader.value()
    if reader.peek():
        raise NotJson(f"something stands behind the value at {reader.at}: {text[reader.at :][:80]!r}")
    return _resolve(root, root)


def _resolve(value: Any, root: Any) -> Any:
    if isinstance(value, list):
        return [_resolve(each, root) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"$ref"}:
        target = root
        for name, index in _STEP.findall(value["$ref"]):
            target = target[name] if name else target[int(index)]
        return _resolve(target, root)
    return {name: _resolve(member, root) for name, member in value.items()}
