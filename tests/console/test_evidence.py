"""What the doctor saw, in Chinese: no English word is left of any rule's sentence."""

import re

import pytest

from lockstep.client.diagnosis.rules import RULES, examine
from lockstep.console.translations.choose import Texts
from lockstep.console.translations.evidence import chinese_evidence, chinese_place
from tests.client.admin.test_doctor_rules import BAD

WORDS = re.compile(r"(?<![\w@:-])[a-z]{2,}(?![\w@:-])")
NAMES = {"orders", "paid", "min", "pop", "consumeMessageOrderly", "false"}
OTHERS = (
    "a is connected from 10.0.0.1:1, 10.0.0.2:2; one may have been cut, and be gone within two minutes",
    "a call of a for orders@broker-a:0 runs since 31.0 s, and messages wait",
    "4 of 1,300 calls of a took longer than half the life of a lock",
    "delivered again and again, and acknowledged by nobody: orders@b:0 at offset 7 (4 times), orders@b:1 at offset 9",
    "deliveries are held: orders@b:0 at offset 7 by a client for 95.1 s, orders@b:0 at offset 8 by c for 5 min 02 s",
    "its clock is 4.0 s ahead of this machine's",
    "its messages were stored 4.0 s before they were sent",
    "in order: a, b, c and 29 more; concurrently: d",
    "a has none; b has orders '*'",
)


def seen() -> list[str]:
    return [*(one.evidence for rule in RULES for one in examine(BAD[rule])), *OTHERS]


@pytest.mark.parametrize("english", sorted(set(seen())))
def test_evidence_in_chinese(english: str) -> None:
    """Names and numbers stay, and no English word; the English page has the rule's own sentence."""
    chinese = Texts("zh").evidence(english)
    assert set(WORDS.findall(chinese)) <= NAMES, chinese
    assert sorted(re.findall(r"\d+", chinese)) == sorted(re.findall(r"\d+", english)), chinese
    assert Texts("en").evidence(english) == english


def test_a_sentence_that_is_not_known_stays() -> None:
    """A newer rule's, or one with endless names."""
    assert chinese_evidence("a newer sentence") == "a newer sentence"
    endless = f"in order: {'x' * 3000}; concurrently: b"
    assert chinese_evidence(endless) == endless


def test_places_in_chinese() -> None:
    """The kind of a place is translated, its name is not."""
    assert Texts("zh").place("group topic x") == "消费组 topic x"
    assert chinese_place("broker-a") == "broker-a"
    assert Texts("en").place("group shop") == "group shop"
