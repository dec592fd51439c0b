"""The page of permissions: what each request code requires in RocketMQ's and in strict mode."""

from lockstep.broker.acl.required_permissions import NAME_SERVER_ADMIN, REQUIRED_PERMISSIONS
from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from lockstep.protocol.codes import RequestCode


def permissions() -> str:
    """The rows of the codes that a broker serves, and then those of a name server."""
    lines = [
        "# What each request requires",
        "",
        "| code | request to a broker | RocketMQ | strict |",
        "|---|---|---|---|",
    ]
    for code in sorted(RequestCode):
        if code in BROKER_HANDLERS:
            rocketmq, strict = REQUIRED_PERMISSIONS[code]
            lines.append(f"| {int(code)} | {code.name} | {rocketmq.text} | {strict.text} |")
    lines += ["", "Every other code requires a signature, and is answered that it is not supported.", ""]
    lines += ["| code | request to a name server | RocketMQ | strict |", "|---|---|---|---|"]
    for code in sorted(RequestCode):
        if code in NAME_SERVER_HANDLERS:
            lines.append(
                f"| {int(code)} | {code.name} | nothing | {'admin' if code in NAME_SERVER_ADMIN else 'nothing'} |"
            )
    return "\n".join([*lines, ""])
