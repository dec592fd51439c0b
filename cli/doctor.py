"""`lockstep doctor`: prints what the rules found."""

from lockstep.cli.output import CliError, OutputFormat, StderrLog, counted, json_line, note, write_out
from lockstep.client.admin.client import AdminClient
from lockstep.client.diagnosis.gather import gather
from lockstep.client.diagnosis.rules import RULES, Finding, Severity, examine, not_looked_at
from lockstep.protocol.names import check_group
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import printable

__all__ = ["FoundProblems", "doctor"]


class FoundProblems(CliError):
    """The exit status of the worst finding."""

    def __init__(self, findings: list[Finding]) -> None:
        self.exit_code = int(findings[0].severity)
        breaking = sum(finding.severity is Severity.BREAKS_ORDER for finding in findings)
        warnings = len(findings) - breaking
        super().__init__(f"{counted(breaking, 'thing')} will break order, {counted(warnings, 'warning')}")


async def doctor(name_server: str, group: str | None, output: OutputFormat) -> None:
    """Look at a cluster, ours or Apache's, and print what will break order.

    Raises:
        FoundProblems: With the exit status 3 or 4.
    """
    if group is not None:
        check_group(group)
    runtime = AsyncioRuntime()
    async with AdminClient(name_server=name_server, runtime=runtime, log=StderrLog(verbose=False)) as admin:
        facts = await gather(admin, runtime, group)
    findings, unseen = examine(facts), not_looked_at(facts)
    if unseen:
        note(f"{', '.join(unseen[:-1])} and {unseen[-1]} were not looked at: they need Lockstep's brokers")
    if output is OutputFormat.JSON:
        rows = [finding._asdict() | {"severity": finding.severity.name.lower()} for finding in findings]
        body = ",\n".join(" " + json_line(row) for row in rows)
        write_out(f"[\n{body}\n]\n".encode() if rows else b"[]\n")
    else:
        write_out("".join(map(_text, findings)).encode("utf-8", "replace"))
    if findings:
        raise FoundProblems(findings)
    known = [one for one in facts.groups if one.members or one.queues]
    looked_at = counted(len(known), "group")
    if output is OutputFormat.TABLE:
        write_out(f"nothing found: {len(RULES)} rules, {looked_at}\n".encode())
    if not known:
        what = "no consumer group is online or has" if group is None else f"group {group} has no members and no"
        note(f"{what} offsets, so there was little to look at")


def _text(finding: Finding) -> str:
    head = "BREAKS ORDER" if finding.severity is Severity.BREAKS_ORDER else "warning"
    lines = (
        f"{head}  {finding.where}: {finding.rule}",
        f"  seen      {finding.evidence}",
        f"  so        {finding.consequence}",
        f"  cure      {finding.cure}",
    )
    return "".join(f"{printable(line)}\n" for line in lines) + "\n"
