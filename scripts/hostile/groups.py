"""Attacks on groups, clients and routes: many groups or subscriptions in a heartbeat, and requests that scan them."""

import json
from typing import Any

from lockstep.protocol.codes import RequestCode
from lockstep.testing.peer import json_request
from scripts.hostile.run import Attack
from scripts.hostile.target import Target

__all__ = ["GROUP_ATTACKS"]

GROUPS = 4000
GROUPS_ALLOWED = 1000
ALL_GROUPS = 19_000
SUBSCRIPTIONS_ALLOWED = 5000
QUEUES = 16_384
ROUTES = 8000
SUBSCRIPTIONS = 40_000
PRODUCER_GROUPS = 300_000
CLOSINGS = 300
CONNECTIONS = 48
ABOUT_ALL = (
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_TOPIC_CONFIG,
)
ABOUT_QUEUES = (
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.GET_BROKER_CONSUME_STATS,
)


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


async def groups_by_heartbeats(target: Target, count: int) -> str:
    """As many groups a heartbeat as are allowed, in many heartbeats, each from its own connection."""
    made = []
    for start in range(0, count, GROUPS_ALLOWED):
        names = range(start, start + GROUPS_ALLOWED)
        made.append(await target.ask(heartbeat([consumer(f"group-{number}", []) for number in names])))
    return f"{len(made)} times {made[-1]}"


async def about_all_groups(target: Target) -> str:
    answers = [await groups_by_heartbeats(target, ALL_GROUPS)]
    peer = await target.connect()
    fields = {"topic": "probe", "queueId": 0, "commitOffset": 0}
    await peer.ask_all(
        json_request(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"consumerGroup": f"group-{number}"})
        for number in range(ALL_GROUPS)
    )
    for code in ABOUT_ALL:
        fields = {"isOrder": "false"} if code == RequestCode.GET_BROKER_CONSUME_STATS else {}
        answers.append(f"{int(code)}: {await target.ask(json_request(code, fields))}")
    return ", ".join(answers)


async def groups_on_a_disk(target: Target) -> str:
    return await groups_by_heartbeats(target, ALL_GROUPS)


async def subscriptions_allowed(target: Target) -> str:
    subscriptions = [subscription(f"topic-{number}") for number in range(SUBSCRIPTIONS_ALLOWED)]
    return await target.ask(heartbeat([consumer("many", subscriptions)]))


async def stats_of_many_queues(target: Target) -> str:
    fields: dict[str, Any] = {
        "topic": "wide", "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    answers = [await target.ask(json_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))]
    commit = {"topic": "wide", "queueId": 0, "commitOffset": 0, "consumerGroup": "g"}
    await target.ask(json_request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
    await target.ask(heartbeat([consumer("g", [])]))
    for code in ABOUT_QUEUES:
        about = {"topic": "wide", "consumerGroup": "g", "group": "g", "isOrder": "false"}
        answers.append(f"{int(code)}: {await target.ask(json_request(code, about))}")
    return ", ".join(answers)


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


async def closings_allowed(target: Target) -> str:
    """As many groups a connection, and as many connections a group, as are allowed; all close at once."""
    peers = [await target.connect() for _ in range(CONNECTIONS)]
    answer = ""
    for number, peer in enumerate(peers):
        for part in range(2):
            names = [f"p{number}-{part}-{member}" for member in range(GROUPS_ALLOWED)]
            answer = await peer.outcome(heartbeat(producers=names))
    for peer in peers:
        peer.abort()
    return answer


async def consumers_end(target: Target) -> str:
    """Members of the same thousand groups end; the brokers notify those that stay."""
    peers = [await target.connect() for _ in range(10)]
    groups = [consumer(f"group-{number}", []) for number in range(GROUPS_ALLOWED)]
    answers = [await peer.outcome(heartbeat(groups)) for peer in peers]
    for peer in peers[1:]:
        peer.abort()
    return answers[-1]


async def registrations(target: Target) -> str:
    """Brokers that do not exist register with as many topics as fit into a request; then they end."""
    peers = [await target.connect(name_server=True) for _ in range(10)]
    answers = []
    for number, peer in enumerate(peers):
        name = f"broker-{number}"
        topics = {
            topic: {"topicName": topic, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
            for topic in (f"t{number}-{count}" for count in range(ROUTES))
        }
        wrapper = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": topics}
        body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}, separators=(",", ":"))
        fields = {
            "brokerName": name,
            "brokerAddr": "127.0.0.1:9",
            "clusterName": "C",
            "haServerAddr": "",
            "brokerId": 0,
        }
        answers.append(await peer.outcome(json_request(RequestCode.REGISTER_BROKER, fields, body.encode())))
    listed = await target.ask(json_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), name_server=True)
    for peer in peers:
        peer.abort()
    return f"{answers[-1]}, list: {listed}"


GROUP_ATTACKS = (
    Attack("heartbeat-groups", 12, f"a heartbeat with {GROUPS:,} new consumer groups", heartbeat_of_groups),
    Attack("groups-on-a-disk", 12, f"{ALL_GROUPS:,} groups, {GROUPS_ALLOWED:,} a heartbeat; the broker keeps them",
           groups_on_a_disk, 120.0, ("--data-dir", "{folder}/data")),
    Attack("registrations", 12, f"10 registrations of {ROUTES:,} topics, their list, then the brokers end",
           registrations, 60.0),
    Attack("about-all-groups", 16, f"{ALL_GROUPS:,} groups and offsets, then requests 317, 201, 43 and 21",
           about_all_groups, 120.0),
    Attack("stats-of-queues", 16, f"a topic of {QUEUES:,} queues, then requests 202, 208, 303 and 317",
           stats_of_many_queues),
    Attack("closings", 17, f"a heartbeat with {PRODUCER_GROUPS:,} producer groups, then {CLOSINGS} connections end",
           closings_with_many_groups),
    Attack("closings-allowed", 17, f"{CONNECTIONS} connections end, each in {2 * GROUPS_ALLOWED:,} producer groups",
           closings_allowed, 60.0),
    Attack("consumers-end", 17, f"9 of 10 members of {GROUPS_ALLOWED:,} consumer groups end", consumers_end, 60.0),
    Attack("unregister-broker", 18, "request 104 with the broker's own name and address", unregister_the_broker),
    Attack("heartbeat-subscriptions", 20, f"a heartbeat with {SUBSCRIPTIONS:,} subscriptions",
           heartbeat_of_subscriptions),
    Attack("subscriptions-allowed", 20, f"a heartbeat with {SUBSCRIPTIONS_ALLOWED:,} subscriptions",
           subscriptions_allowed),
)  # fmt: skip
