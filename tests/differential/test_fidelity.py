"""What the answers together say: enough cases, enough agreement, no idle excuse."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.differential.case import NAME_SERVER, Case
from tests.differential.cases.all import ALL_CASES
from tests.differential.comparing import Outcome
from tests.differential.connection_cases import CONNECTION_REASONS, ConnectionOutcome
from tests.differential.explanations import EXPLANATIONS, explain
from tests.differential.fidelity import Fidelity
from tests.differential.served import served_codes, unserved_codes
from tests.differential.side import Side

pytestmark = pytest.mark.timeout(300)  # the first test asks everything
CASES_MIN = 300
CASES_OF_A_KIND_MIN = 5
AGREEMENT_MIN = 0.95


def test_every_served_code_has_its_cases() -> None:
    """Every code that we serve has at least five valid and five invalid cases, and every case a name of its own."""
    counted = [case for case in ALL_CASES if case.kind != "step"]
    kinds = Counter((int(case.code), case.kind) for case in counted)
    poor = {
        code: (kinds[code, "valid"], kinds[code, "invalid"])
        for code in served_codes()
        if min(kinds[code, "valid"], kinds[code, "invalid"]) < CASES_OF_A_KIND_MIN
    }
    assert not poor, f"codes with too few valid and invalid cases: {poor}"
    assert len({case.id for case in counted}) == len(counted)


def test_no_explanation_is_idle(outcomes: Mapping[str, Outcome]) -> None:
    """An explanation that explains no difference is to be taken away."""
    used = {found for outcome in outcomes.values() for _, found in explain(outcome) if found}
    idle = [each for each in EXPLANATIONS if each not in used]
    assert not idle


def test_agreement_is_high(fidelity: Fidelity, root: Path) -> None:
    """At least 95 of a hundred cases agree, of all and in the mean over codes; build/fidelity.* say how many."""
    folder = root / "build"
    folder.mkdir(exist_ok=True)
    (folder / "fidelity.json").write_text(fidelity.as_json(), encoding="utf-8")
    (folder / "fidelity.md").write_text(fidelity.as_markdown(), encoding="utf-8")
    assert fidelity.total.cases >= CASES_MIN
    assert fidelity.total.agree / fidelity.total.cases >= AGREEMENT_MIN
    assert fidelity.mean >= AGREEMENT_MIN


@pytest.mark.parametrize("code", unserved_codes())
@pytest.mark.parametrize("server", ["broker", NAME_SERVER])
def test_unserved_codes_are_refused(code: int, server: str, sides: tuple[Side, Side]) -> None:
    """A code that is not served is answered with REQUEST_CODE_NOT_SUPPORTED, by either server of ours."""
    _, lockstep = sides
    answer = lockstep.ask(Case(code, "unserved", "step", server=server, connection="unserved"))
    assert answer.reply is not None
    assert answer.reply.code == 3


def test_unknown_codes(sides: tuple[Side, Side]) -> None:
    """Apache's broker refuses an unknown code as ours does; its name server is silent, ours is not."""
    apache, lockstep = sides
    unknown = Case(29998, "unknown", "step", connection="unknown")
    codes = [found.reply.code for side in sides if (found := side.ask(unknown)).reply]
    assert codes == [3, 3]
    unknown = Case(29998, "unknown", "step", connection="unknown", server=NAME_SERVER, silent=True)
    assert apache.ask(unknown).reply is None
    reply = lockstep.ask(replace(unknown, silent=False)).reply
    assert reply is not None
    assert reply.code == 3


def test_what_is_no_request(connection_outcomes: Mapping[str, ConnectionOutcome]) -> None:
    """Bytes that are no request are answered, passed over or end the connection as on Apache's broker."""
    differ = {name: each for name, each in connection_outcomes.items() if not each.agrees}
    assert {name: each for name, each in differ.items() if name not in CONNECTION_REASONS} == {}
    assert set(CONNECTION_REASONS) == set(differ), "a reason that is no longer needed"
