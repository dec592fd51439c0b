"""Why two answers may differ. A difference that is in no row fails its test, and so does a row without a difference."""

import re
from typing import Final, NamedTuple

from tests.differential.comparing import Difference, Outcome

__all__ = ["EXPLANATIONS", "Explanation", "explain"]


class Explanation(NamedTuple):
    """`codes` empty: every code. `case` is a regular expression for `kind/name`, `path` one for a whole path.

    `ours` is one for all that our broker shows there, `but` one for what alone may differ in it.
    """

    reason: str
    path: str = ".*"
    codes: tuple[int, ...] = ()
    case: str = ".*"
    ours: str = "(?s).*"
    but: str = ""

    def covers(self, outcome: Outcome, difference: Difference) -> bool:
        case = outcome.case
        return (
            (not self.codes or case.code in self.codes)
            and re.fullmatch(self.case, f"{case.kind}/{case.name}") is not None
            and re.fullmatch(self.path, difference.path) is not None
            and re.fullmatch(self.ours, str(difference.lockstep)) is not None
            and (not self.but or self._rest(difference.apache) == self._rest(difference.lockstep))
        )

    def _rest(self, shown: object) -> str:
        return re.sub(self.but, "", str(shown))


_NAMES: Final = "a group's name must be one that RocketMQ's own clients allow; its broker takes any"
_NOT_THERE: Final = "an offset is of a topic and a queue that are there, as since RocketMQ 5; 4.9 stores any for ever"
_TEXT: Final = "a text must be text; fastjson takes the JSON of anything else for it, and cuts numbers and bytes to fit"
_NULL_BROKER: Final = "a broker must have a name, an address and a cluster; RocketMQ registers one that is called null"
_ONE_WAY: Final = "a one-way request has no reply; RocketMQ writes these out of its log whatever was asked"
_OWN_ENCODING: Final = "a reply has its request's encoding; RocketMQ writes these as JSON"

EXPLANATIONS: Final[tuple[Explanation, ...]] = (
    Explanation("how a filter was compiled is not told: there is no Bloom filter in it", path=r"body\.filterData",
                codes=(321,), case="valid/sql-group"),
    Explanation("a broken expression is refused; RocketMQ takes it for one that matches all",
                codes=(11,), case="valid/sql-broken"),
    Explanation("an unknown kind of expression is refused; RocketMQ takes it for one that matches all",
                codes=(11,), case="invalid/unknown-type"),
    Explanation("no message is asked for; RocketMQ fails at it", codes=(11,), case="invalid/negative-many"),
    Explanation(_NAMES, codes=(11,), case="invalid/(empty-group|group-illegal|group-too-long)"),
    Explanation(_NAMES, codes=(36,), case="invalid/(empty-group|illegal-group)"),
    Explanation(_NAMES, codes=(200,), case="invalid/(name-.*|null|a-list)"),
    Explanation(_ONE_WAY, codes=(12, 33), case="valid/one-way"),
    Explanation(_OWN_ENCODING, path="encoding", codes=(12, 33), case="valid/binary-header"),
    Explanation("no failure but a refusal with two fields; RocketMQ fails", path=r"ext.*", codes=(10, 310),
                case="invalid/delay-text"),
    Explanation(_NAMES, codes=(15,), case="invalid/empty-group"),
    Explanation(_NOT_THERE, codes=(15,),
                case="valid/unknown-topic|invalid/(negative-queue|empty-topic-name|missing-topic)"),
    Explanation(_NAMES, codes=(314,), case="invalid/empty-destGroup"),
    Explanation("without a topic, offsets of every topic are cloned; RocketMQ clones none",
                codes=(14,), case="valid/cloned-all"),
    Explanation("a permission is made of the three bits that there are", codes=(17,), case="valid/perm-unknown-bits"),
    Explanation("a number of queues is not negative", codes=(17,), case="invalid/negative-queues"),
    Explanation("a filter type that is missing is SINGLE_TAG; RocketMQ fails", codes=(17,),
                case="invalid/filter-type-missing"),
    Explanation("topics that only one of the two has made: see 11, 17 and 36",
                path=r"body\.topicConfigTable\.(DiffAdmin13|DiffBad[14]|%RETRY%|%DLQ%|TRANS_CHECK).*", codes=(21,),
                case="valid/with-all-that-was-asked-for"),
    Explanation("a topic's filter type is not kept: nothing reads it", path=r"body\..*\.topicFilterType", codes=(21,),
                case="valid/with-all-that-was-asked-for"),
    Explanation("who is not there is not gone: others hear nothing; RocketMQ tells them", path=r"pushes.*", codes=(35,),
                case="valid/consumer-again"),
    Explanation(_TEXT, codes=(41, 42), case="invalid/(client-is-a-list|group-is-an-object|not-utf-8|queue-id-is.*)"),
    Explanation("a queue has a broker's name", codes=(41, 42), case="valid/no-broker-name"),
    Explanation("where no queue is named, the group is not looked at; RocketMQ fails", codes=(42,),
                case="invalid/empty-object"),
    Explanation("a value must be there; RocketMQ keeps null", codes=(100,), case="invalid/unknown-key"),
    Explanation(_OWN_ENCODING, path="encoding", codes=(100,), case="invalid/binary-header-no-key"),
    Explanation(_NULL_BROKER, codes=(103,), case="invalid/(missing-(name|address|cluster)|binary-header-no-name)"),
    Explanation("there are no replicas: the address of a master's replication is not kept", path=r"ext\.haServerAddr",
                codes=(103,), case="valid/slave"),
    Explanation("an absent flag goes on as false", path=r"pushes\[0\]\.ext\.jstackEnable", codes=(307,),
                case="valid/without-the-flag"),
    Explanation("counts by queue are kept; this RocketMQ has none", codes=(315,),
                case="valid/queue-(put|get)"),
    Explanation("latencies of pulls are not kept", codes=(315,), case="valid/latency"),
    Explanation("a record must end where it says; RocketMQ takes it", codes=(320,),
                case="invalid/record-longer-than-blob"),
    Explanation("a SEND_BATCH_MESSAGE is a batch, whatever its mark says; RocketMQ goes by the mark", codes=(320,),
                case="invalid/(not-marked-as-batch|mark-missing)"),
    Explanation("a batch does not go to a retry topic, as in RocketMQ's clients", codes=(320,),
                case="invalid/to-retry-topic"),
    Explanation("an index that is not there is always a remark; RocketMQ fails for a queue that nobody asked of before",
                codes=(321,), case="invalid/queue-above"),
    Explanation("a broker is known by its name, id and address; RocketMQ looks at the address alone", codes=(322,),
                case="invalid/(missing-name|missing-cluster|broker-id-text|no-fields)"),
    Explanation("a version must be an object", codes=(322,), case="invalid/null"),
    Explanation("only a half message is made one again; RocketMQ makes one of any message", codes=(323,),
                case="invalid/no-half-message"),
)  # fmt: skip


def explain(
    outcome: Outcome, explanations: tuple[Explanation, ...] = EXPLANATIONS
) -> list[tuple[Difference, Explanation | None]]:
    """Every difference with its first explanation."""
    return [
        (difference, next((each for each in explanations if each.covers(outcome, difference)), None))
        for difference in outcome.differences
    ]
