"""`lockstep status`: prints the state of a cluster, and what is not well."""

from typing import Any, Final

from lockstep.cli.output import CliError, OutputFormat, StderrLog, counted, json_line, print_rows, seconds, write_out
from lockstep.cli.time import duration_ms
from lockstep.client.admin.client import AdminClient
from lockstep.client.diagnosis.facts import BrokerFacts, ClusterFacts, GroupFacts
from lockstep.client.diagnosis.gather import gather_health
from lockstep.client.diagnosis.health import Problem, problems
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import printable

__all__ = ["NotWell", "status"]

_BROKERS: Final = ("broker", "address", "role", "make", "version", "up", "stored/s", "pulled/s", "store", "plain_sends")
_GROUPS: Final = ("group", "members", "lag", "oldest", "locks", "dead_letters")


class NotWell(CliError):
    """Something is not well; nothing has failed."""

    exit_code = 3

    def __init__(self, found: list[Problem]) -> None:
        count = len(found)
        super().__init__(f"{counted(count, 'thing')} {'is' if count == 1 else 'are'} not well")


async def status(name_server: str, behind: str, output: OutputFormat) -> None:
    """Look once at all brokers and groups.

    Raises:
        NotWell: With the exit status 3.
        NoRouteError: No name server answers.
    """
    behind_ms = duration_ms(behind, "--behind")
    runtime = AsyncioRuntime()
    async with AdminClient(name_server=name_server, runtime=runtime, log=StderrLog(verbose=False)) as admin:
        cluster = await gather_health(admin, runtime, behind_ms)
    found = problems(cluster)
    if output is OutputFormat.JSON:
        write_out(json_line(_as_json(cluster, found)).encode("utf-8", "replace") + b"\n")
    else:
        _print(cluster, found)
    if found:
        raise NotWell(found)


def _as_json(cluster: ClusterFacts, found: list[Problem]) -> dict[str, Any]:
    locks, owners = _locks(cluster)
    return {
        "well": not found,
        "not_well": [problem._asdict() for problem in found],
        "brokers": [broker._asdict() for broker in cluster.brokers],
        "topics": cluster.topics_count,
        "locks": locks,
        "owners": owners,
        "groups": [_group(group, cluster.now_ms) for group in cluster.groups],
    }


def _locks(cluster: ClusterFacts) -> tuple[int | None, int | None]:
    """How many queues are locked, by how many members."""
    if not cluster.lists_locks:
        return None, None
    rows = [row for group in cluster.groups for row in (group.locks or {}).values() if row.is_held]
    return len(rows), len({row.client_id for row in rows})


def _group(group: GroupFacts, now_ms: int) -> dict[str, Any]:
    return {
        "name": group.name,
        "members": len(group.members),
        "lag": group.lag,
        "oldest_ms": max(now_ms - group.oldest_ms, 0) if group.oldest_ms else None,
        "locks": None if group.held is None else len(group.held),
        "unowned": list(map(str, group.unowned)),
        "dead_letters": group.dead_letter_count,
        "dead_letter_ms": max(now_ms - group.dead_letter_ms, 0) if group.dead_letter_count else None,
    }


def _print(cluster: ClusterFacts, found: list[Problem]) -> None:
    print_rows(_BROKERS, [_broker_texts(broker) for broker in cluster.brokers], OutputFormat.TABLE)
    if cluster.groups:
        write_out(b"\n")
        rows = [_group(group, cluster.now_ms) for group in cluster.groups]
        print_rows(_GROUPS, [row | _group_texts(row) for row in rows], OutputFormat.TABLE)
    counts = [counted(cluster.topics_count, "topic"), counted(len(cluster.groups), "group")]
    locks, owners = _locks(cluster)
    if locks is not None:
        counts.append(f"{counted(locks, 'lock')} of {counted(owners or 0, 'owner')}")
    lines = ["", ", ".join(counts)]
    lines += [f"not well  {problem.where}: {problem.seen}" for problem in found] or ["all is well"]
    write_out("".join(f"{printable(line)}\n" for line in lines).encode("utf-8", "replace"))


def _group_texts(row: dict[str, Any]) -> dict[str, Any]:
    return {"group": row["name"], "oldest": None if row["oldest_ms"] is None else seconds(row["oldest_ms"])}


def _broker_texts(broker: BrokerFacts) -> dict[str, Any]:
    answers = broker.error is None
    return {
        "broker": broker.name,
        "address": broker.address,
        "role": "master" if broker.is_master else "slave",
        "make": {True: "Lockstep", False: "RocketMQ", None: None}[broker.is_lockstep],
        "version": broker.version or None,
        "up": seconds(broker.up_ms) if broker.up_ms else None,
        "stored/s": round(broker.stored_tps, 1) if answers else None,
        "pulled/s": round(broker.pulled_tps, 1) if answers else None,
        "store": f"{broker.store_ratio:.0%}" if answers else None,
        "plain_sends": f"{broker.sends_taken} taken, {broker.sends_refused} refused" if broker.is_lockstep else None,
    }
