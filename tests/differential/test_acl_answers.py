"""The same requests to Apache's broker and to ours, both with ACL and the same rules."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from lockstep.testing.process import BrokerProcess
from tests.differential.case import Case
from tests.differential.cases.acl import ACL_CASES, RULES, AclCase
from tests.differential.side import Side
from tests.interop.harness.servers import apache_server

pytestmark = pytest.mark.timeout(300)  # the first test starts both and asks everything
_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
_PLACE: Final = re.compile(r", org\.apache\.[\w.$]+\([\w.]+:\d+\)$")
Shown = tuple[Any, ...]


def shown(case: AclCase, side: Side) -> Shown:
    """What is compared: the code, the remark where it says why, and what code 54 shows."""
    kind = "valid"
    asked = Case(
        case.code, case.name, kind, case.signed_fields(), case.body, encoding=case.encoding, flag=2 * case.one_way
    )
    reply = side.ask(asked).reply
    if reply is None:
        return ("silence",)
    remark = _PLACE.sub("", reply.remark or "")
    told = remark if remark.startswith(_EXCEPTION) or case.code in range(50, 55) else ""
    if case.code != 54 or reply.code != 0:
        return (reply.code, told)  # RocketMQ refuses in JSON whatever was asked; ours in the encoding of the request
    rules = json.loads(reply.body)
    return (
        reply.code,
        rules["globalWhiteAddrs"],
        sorted(rules["plainAccessConfigs"], key=lambda each: each["accessKey"]),
    )


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Shown, Shown]]]:
    """By case: Apache's answer and ours."""
    theirs, ours = tmp_path_factory.mktemp("acl-apache"), tmp_path_factory.mktemp("acl-lockstep")
    (theirs / "conf" / "acl").mkdir(parents=True)
    (theirs / "conf" / "plain_acl.yml").write_text(RULES)
    (ours / "plain_acl.yml").write_text(RULES)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("LOCKSTEP_ACCESS_KEY", "adminadmin")  # of the client that asks whether the broker is there
        patch.setenv("LOCKSTEP_SECRET_KEY", "secret-admin")
        apache = stack.enter_context(apache_server(theirs, {"aclEnable": "true"}))
        broker = stack.enter_context(BrokerProcess("--acl", str(ours / "plain_acl.yml"), folder=ours))
        sides = [Side(address(apache.broker), address(apache.name_server))]
        sides.append(Side(address(broker.address), address(broker.name_server)))
        found = [[shown(case, side) for case in ACL_CASES] for side in sides]
        for side in sides:
            side.close()
        yield {case.name: pair for case, pair in zip(ACL_CASES, zip(*found, strict=True), strict=True)}


@pytest.mark.parametrize("case", ACL_CASES, ids=[case.name for case in ACL_CASES])
def test_acl_answers_agree(case: AclCase, answers: dict[str, tuple[Shown, Shown]]) -> None:
    """Both answer alike; where a case gives a reason to differ, they do differ."""
    apache, lockstep = answers[case.name]
    if case.differs:
        assert apache != lockstep, f"they agree now: {case.differs}"
    else:
        assert lockstep == apache


def test_there_are_enough_cases() -> None:
    """At least 60, each with a name of its own."""
    assert len({case.name for case in ACL_CASES}) == len(ACL_CASES) >= 60
