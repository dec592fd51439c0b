"""What mqadmin is asked, of both brokers in the same state (mqadmin_story.py), one case after the other."""

from typing import NamedTuple

from tests.interop.stories.mqadmin_masks import Mask

__all__ = ["CASES", "STATS", "SUMS_OF_A_DAY", "Case"]

_RATES = Mask(r"\b\d+\.\d\d\(\d+,\d+ms\)", "RATE(LOAD)", "rates of the last seconds")
_SPACE = Mask(
    r"[\d.]+ +[\d.]+$", "HOURS SPACE", "Apache's shows -1 as the first message's time while its log is short; disks"
)
_TPS = Mask(r"(Consume TPS: +)[\d.]+|(PUSH +CLUSTERING +)\d+", r"\1\2RATE", "a rate of the last seconds")
_OFFLINE_TPS = Mask(r"(OFFLINE +)\d+", r"\1RATE", "a rate of the last seconds")
STATS = Mask(r" \d+\.\d\d\b", " RATE", "rates of the last minute")
SUMS_OF_A_DAY = Mask(
    r"(RATE +RATE) +\d+ +\d+|(RATE) +\d+(?= +NO_CONSUMER)",
    r"\1\2 SUMS",
    "sums of a day, sampled every ten seconds of each broker's own clock",
)
_TIMES = Mask(r"(true|false) +\d+$", r"\1 MILLISECONDS", "how long sends took")
_OBJECT = Mask(r"(/0x[0-9a-f]+)?@[0-9a-f]{5,8}\b", "@HASH", "a Java object's identity")
_CLOCK = Mask(r"\b20\d{12}(\d{3})?\b", "TIME", "when it started, pulled, handled and renewed locks")
_RT = Mask(r"\b\d+\.\d\d\b", "RATE", "response times and rates")
_PULLED = Mask(r"cachedMsg(Min|Max)Offset=\d+", "cachedMsgOffset=N", "what the last pull brought")
_PORT = Mask(r"PROP_NAMESERVER_ADDR.*", "PROP_NAMESERVER_ADDR", "both run on free ports")
_QUEUE = Mask(r"^(broker-a +)\d+( +SEND_OK)", r"\1QUEUE\2", "the sender picks any queue")


class Case(NamedTuple):
    """A story of command lines, each compared. `any_order`: Apache's order of lines is that of a hash table."""

    name: str
    commands: tuple[str, ...]
    any_order: bool = False
    masks: tuple[Mask, ...] = ()


CASES = (
    Case("clusterList", ("clusterList",), masks=(_RATES, _SPACE)),
    Case("clusterList -m", ("clusterList -m",)),
    Case("topicList", ("topicList",), any_order=True),
    Case("topicList -c", ("topicList -c",), any_order=True),
    Case("topicRoute", ("topicRoute -t orders", "topicRoute -t nosuch")),
    Case("topicStatus", ("topicStatus -t orders", "topicStatus -t nosuch")),
    Case("topicClusterList", ("topicClusterList -t orders",)),
    Case(
        "consumerProgress -g",
        ("consumerProgress -g online", "consumerProgress -g settled", "consumerProgress -g nosuch"),
        masks=(_TPS,),
    ),
    Case("consumerProgress -g -s", ("consumerProgress -g online -s true",), masks=(_TPS,)),
    Case("consumerProgress", ("consumerProgress",), any_order=True, masks=(_TPS, _OFFLINE_TPS)),
    Case("consumerConnection", ("consumerConnection -g online", "consumerConnection -g settled")),
    Case("consumerStatus", ("consumerStatus -g online", "consumerStatus -g settled")),
    Case(
        "consumerStatus -i",
        ("consumerStatus -g online -i {client}",),
        masks=(_OBJECT, _CLOCK, _RT, _PULLED, _PORT),
    ),
    Case("producerConnection", ("producerConnection -g producing -t busy", "producerConnection -g nosuch -t busy")),
    Case("producer", ("producer -b {broker}",), any_order=True),
    Case("queryMsgById", ("queryMsgById -i {id_7}", "queryMsgById -i {id_49}")),
    Case("queryMsgByKey", ("queryMsgByKey -t orders -k key-3", "queryMsgByKey -t orders -k nosuch")),
    Case("queryMsgByUniqueKey", ("queryMsgByUniqueKey -t orders -i {unique_7}",)),
    Case(
        "queryMsgByOffset",
        ("queryMsgByOffset -t orders -b broker-a -i 0 -o 3", "queryMsgByOffset -t orders -b broker-a -i 0 -o 999"),
    ),
    Case("printMsg", ("printMsg -t orders",), any_order=True),
    Case("printMsgByQueue", ("printMsgByQueue -t orders -a broker-a -i 1 -p true -f true",)),
    Case(
        "queryCq",
        ("queryCq -t orders -q 1 -i 0 -c 3 -b {broker}", "queryCq -t orders -q 1 -i 0 -c 3 -b {broker} -g online"),
    ),
    Case(
        "brokerConsumeStats",
        ("brokerConsumeStats -b {broker}", "brokerConsumeStats -b {broker} -l 5"),
        any_order=True,
    ),
    Case("statsAll", ("statsAll", "statsAll -t orders"), any_order=True, masks=(STATS, SUMS_OF_A_DAY)),
    Case("getConsumerConfig", ("getConsumerConfig -g online",)),
    Case(
        "getConsumerStatus",
        ("getConsumerStatus -g online -t orders", "getConsumerStatus -g online -t orders -i {client}"),
    ),
    Case("allocateMQ", ("allocateMQ -t orders -i 10.0.0.1,10.0.0.2",)),
    Case(
        "updateTopic -b",
        ("updateTopic -b {broker} -t made -r 3 -w 3 -p 6", "topicRoute -t made", "updateTopic -b {broker} -t bad.name"),
    ),
    Case(
        "updateTopic -c",
        ("updateTopic -c DefaultCluster -t made -r 6 -w 5", "topicRoute -t made", "topicStatus -t made"),
    ),
    Case(
        "updateTopic -o",
        ("updateTopic -c DefaultCluster -t inorder -r 8 -w 8 -o true", "updateOrderConf -t inorder -m get"),
    ),
    Case("updateTopicPerm", ("updateTopicPerm -b {broker} -t made -p 4", "topicRoute -t made")),
    Case(
        "deleteTopic",
        ("deleteTopic -c DefaultCluster -t made", "topicRoute -t made", "deleteTopic -c DefaultCluster -t nosuch"),
    ),
    Case(
        "updateOrderConf",
        tuple(f"updateOrderConf -t orders -m {words}" for words in ("put -v broker-a:4", "get", "delete", "get")),
    ),
    Case(
        "updateKvConfig, deleteKvConfig", ("updateKvConfig -s SPACE -k key -v value", "deleteKvConfig -s SPACE -k key")
    ),
    Case(
        "updateSubGroup",
        (
            "updateSubGroup -b {broker} -g made -s true -m false -d false -q 2 -r 5 -i 0 -w 1 -a true",
            "getConsumerConfig -g made",
            "updateSubGroup -c DefaultCluster -g made -r 7",
            "getConsumerConfig -g made",
        ),
    ),
    Case(
        "deleteSubGroup",
        ("deleteSubGroup -b {broker} -g made", "getConsumerConfig -g made", "deleteSubGroup -c DefaultCluster -g made"),
    ),
    Case(
        "updateBrokerConfig",
        (
            "updateBrokerConfig -b {broker} -k longPollingEnable -v true",
            "updateBrokerConfig -c DefaultCluster -k brokerPermission -v 6",
            "updateBrokerConfig -b {broker} -k nosuch -v 1",
        ),
    ),
    Case("updateNamesrvConfig", ("updateNamesrvConfig -k orderMessageEnable -v true", "topicRoute -t inorder")),
    Case(
        "resetOffsetByTime, group offline",
        (
            "resetOffsetByTime -g settled -t orders -s 1000000000000",
            "consumerProgress -g settled",
            "resetOffsetByTime -g settled -t orders -s -1",
            "consumerProgress -g settled",
            "resetOffsetByTime -g nosuch -t orders -s now",
            "resetOffsetByTime -g settled -t nosuch -s now",
        ),
        any_order=True,
        masks=(_TPS,),
    ),
    Case(
        "resetOffsetByTime, group online",
        ("resetOffsetByTime -g online -t orders -s -1", "resetOffsetByTime -g online -t orders -s now -f false"),
        any_order=True,
    ),
    Case("resetOffsetByTimeOld", ("resetOffsetByTimeOld -g settled -t orders -s -1",), any_order=True),
    Case(
        "skipAccumulatedMessage",
        ("skipAccumulatedMessage -g settled -t orders", "skipAccumulatedMessage -g online -t orders"),
        any_order=True,
    ),
    Case("cloneGroupOffset", ("cloneGroupOffset -s settled -d cloned -t orders -o true",)),
    Case("cleanExpiredCQ", ("cleanExpiredCQ -b {broker}", "cleanExpiredCQ -c DefaultCluster")),
    Case("cleanUnusedTopic", ("cleanUnusedTopic -b {broker}", "cleanUnusedTopic -c DefaultCluster")),
    Case("deleteExpiredCommitLog", ("deleteExpiredCommitLog -b {broker}",)),
    Case("sendMessage", ("sendMessage -t orders -p hello -k fresh -c red",), masks=(_QUEUE,)),
    Case("sendMsgStatus", ("sendMsgStatus -b broker-a -c 2",), masks=(Mask(r"rt=\d+ms", "rt", "how long sends took"),)),
    Case("checkMsgSendRT", ("checkMsgSendRT -t orders -a 3",), masks=(_TIMES, Mask(r"RT: [\d.]+", "RT", "the same"))),
    Case("consumeMessage", ("consumeMessage -t history -c 3 -i 0 -b broker-a -o 4",)),
    Case(
        "wipeWritePerm, addWritePerm",
        ("wipeWritePerm -b broker-a", "topicRoute -t orders", "addWritePerm -b broker-a", "topicRoute -t orders"),
    ),
)
