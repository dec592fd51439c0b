"""Attacks on groups, clients and routes: many groups or subscriptions in one heartbeat, and what walks over them."""

import json
from typing import Any

from hostile_peer import Target, json_request, outcome_of
from hostile_run import Attack

from lockstep.protocol.codes import RequestCode

__all__ = ["GROUP_ATTACKS"]

GROUPS = 4000
SUBSCRIPTIONS = 40_000
PRODUCER_GROUPS = 300_000
CLOSINGS = 300
OFFSET_GROUPS = 20_000


def consumer(group: str, subscriptions: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }


def subscription(topic: str) -> dict[str, Any]:
    return {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG"}


def heartbeat(consumers: list[dict[str, Any]] | None = None, producers: list[str] | None = None) -> bytes:
    body = {
        "clientID": "hostile@1",
        "consumerDataSet": consumers or [],
        "producerDataSet": [{"groupName": name} for name in producers or []],
    }
    return json_request(RequestCode.HEART_BEAT, {}, json.dumps(body, separators=(",", ":")).encode())


async def heartbeat_of_groups(target: Target) -> str:
    return await target.ask(heartbeat([consumer(f"group-{number}", []) for number in range(GROUPS)]))


async def heartbeat_of_subscriptions(target: Target) -> str:
    return await target.ask(heartbeat([consumer("many", [subscription(f"topic-{n}") for n in range(SUBSCRIPTIONS)])]))


async def stats_of_all_groups(target: Target) -> str:
    peer = await target.connect()
    fields = {"topic": "probe", "queueId": 0, "commitOffset": 0}
    commits = (
        json_request(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"consumerGroup": f"group-{number}"})
        for number in range(OFFSET_GROUPS)
    )
    stored = await peer.ask_all(commits)
    return f"{stored}, then {await target.ask(json_request(RequestCode.GET_BROKER_CONSUME_STATS, {'isOrder': False}))}"


async def configs_of_all_groups(target: Target) -> str:
    peer = await target.connect()
    made = []
    for start in range(0, OFFSET_GROUPS, GROUPS):
        names = range(start, start + GROUPS)
        made.append(outcome_of(await peer.ask(heartbeat([consumer(f"group-{number}", []) for number in names]))))
    return f"{made[-1]}, then {await target.ask(json_request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}))}"


async def closings_with_many_groups(target: Target) -> str:
    peers = [await target.connect() for _ in range(CLOSINGS)]
    answer = await target.ask(heartbeat(producers=[f"p{number}" for number in range(PRODUCER_GROUPS)]))
    for peer in peers:
        peer.abort()
    return answer


async def unregister_the_broker(target: Target) -> str:
    fields = {
        "brokerName": "broker-a", "brokerAddr": f"127.0.0.1:{target.port}", "clusterName": "DefaultCluster",
        "brokerId": 0,
    }  # fmt: skip
    answer = await target.ask(json_request(RequestCode.UNREGISTER_BROKER, fields), name_server=True)
    route = json_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    return f"{answer}; a route then: {await target.ask(route, name_server=True)}"


GROUP_ATTACKS = (
    Attack("heartbeat-groups", 12, f"a heartbeat with {GROUPS:,} new consumer groups", heartbeat_of_groups),
    Attack("stats-of-groups", 16, f"{OFFSET_GROUPS:,} groups by commits, then request 317", stats_of_all_groups, 60.0),
    Attack("configs-of-groups", 16, f"{OFFSET_GROUPS:,} groups by heartbeats, then request 201", configs_of_all_groups,
           60.0),
    Attack("closings", 17, f"a heartbeat with {PRODUCER_GROUPS:,} producer groups, then {CLOSINGS} connections end",
           closings_with_many_groups),
    Attack("unregister-broker", 18, "request 104 with the broker's own name and address", unregister_the_broker),
    Attack("heartbeat-subscriptions", 20, f"a heartbeat with {SUBSCRIPTIONS:,} subscriptions",
           heartbeat_of_subscriptions),
)  # fmt: skip
