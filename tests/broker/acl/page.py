"""Writes the table of docs/security.md: what each request code wants in both modes."""

from pathlib import Path

from lockstep.broker.acl.wants import NAME_SERVER_ADMIN, WANTS
from lockstep.broker.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from lockstep.protocol.codes import RequestCode

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
MARK = "<!-- made by `python -m tests.broker.acl.page` from broker/acl/wants.py -->\n"


def table() -> str:
    """The rows of the codes that a broker serves, and then those of a name server."""
    lines = ["", "| code | request to a broker | RocketMQ | strict |", "|---|---|---|---|"]
    for code in sorted(RequestCode):
        if code in BROKER_HANDLERS:
            rocketmq, strict = WANTS[code]
            lines.append(f"| {int(code)} | {code.name} | {rocketmq.text} | {strict.text} |")
    lines += ["", "Every other code wants a signature, and is answered that it is not supported.", ""]
    lines += ["| code | request to a name server | RocketMQ | strict |", "|---|---|---|---|"]
    for code in sorted(RequestCode):
        if code in NAME_SERVER_HANDLERS:
            lines.append(
                f"| {int(code)} | {code.name} | nothing | {'admin' if code in NAME_SERVER_ADMIN else 'nothing'} |"
            )
    return "\n".join([*lines, ""])


def page() -> str:
    """The whole page, with a fresh table."""
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(MARK) + len(MARK)] + table()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
