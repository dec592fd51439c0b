"""Options of the data source: names in any case, aliases, and errors that say what may be given."""

import re

import pytest

from lockstep.pipeline.errors import OptionError
from lockstep.pipeline.offsets import ANY_BROKER, OffsetSpec
from lockstep.pipeline.options import OPTIONS, Options, Use, parse_options
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.settings import Address
from tests.rows import by_row

READ = {"nameServer": "127.0.0.1:9876", "subscribe": "t"}
QUEUE = MessageQueue("t", "broker-a", 0)


def test_names_come_in_any_case_and_by_alias() -> None:
    """Spark hands names on in lower case, rocketmq-spark's and Kafka's words mean the same."""
    given = {"nameserver.address": "h:1;i:2", "TOPIC": "a, b,a", "includeheaders": "TRUE", "consumergroup": "g"}
    found = parse_options(given, Use.READ)
    assert found.name_servers == (Address("h", 1), Address("i", 2))
    assert (found.topics, found.include_properties, found.group) == (("a", "b"), True, "g")


def test_what_is_not_given_has_its_default() -> None:
    """The defaults are those of the dataclass, once."""
    assert parse_options(READ, Use.READ) == Options((Address("127.0.0.1", 9876),), ("t",))


def test_offsets_are_words_or_json() -> None:
    """In market's shape, rocketmq-spark's: topic, broker, queue."""
    text = '{"t":{"broker-a":{"0":23}}}'
    assert parse_options({**READ, "startingOffsets": "Earliest"}, Use.READ).starting == OffsetSpec("earliest")
    assert parse_options({**READ, "startingOffsets": text}, Use.READ).starting == OffsetSpec("offsets", {QUEUE: 23})
    found = parse_options({**READ, "endingOffsetsByTimestamp": text}, Use.READ)
    assert found.ending_times == OffsetSpec("timestamps", {QUEUE: 23})


def test_offsets_come_in_kafkas_shape() -> None:
    """Without a broker, for a topic that one broker has; one topic has one shape."""
    found = parse_options({**READ, "startingOffsets": '{"t":{"0":23,"1":-2}}'}, Use.READ).starting
    assert found == OffsetSpec("offsets", {QUEUE._replace(broker_name=ANY_BROKER): 23, MessageQueue("t", "", 1): -2})
    with pytest.raises(OptionError, match="what '0' of 't' holds must be an object, not 23"):
        parse_options({**READ, "startingOffsets": '{"t":{"0":23,"broker-a":{"1":2}}}'}, Use.READ)


@by_row(
    "option, text, said",
    [
        ("nameServer", "nowhere", "is not an address"),
        ("subscribe", " , ", "names no topic"),
        ("subscribe", "sp ace", "may hold only the characters"),
        ("subscribePattern", "(", "no regular expression"),
        ("assign", '{"t":[]}', "no list of queue ids"),
        ("assign", '{"t":["0"]}', "'0', which is no queue id"),
        ("startingOffsets", "soonest", "no JSON"),
        ("startingOffsets", '{"t":{"broker-a":{"0":-3}}}', "no whole number of -2 or more"),
        ("startingOffsets", '{"t":{"broker-a":{"zero":3}}}', "'zero' is no queue id"),
        ("startingOffsets", '{"t":[1]}', "must be an object, not [1]"),
        ("startingOffsets", "{}", "names no queue"),
        ("startingTimestamp", "yesterday", "no whole number"),
        ("endingOffsets", "earliest", "'earliest' cannot be"),
        ("failOnDataLoss", "yes", "neither true nor false"),
        ("minPartitions", "0", "no whole number of 1 to"),
        ("pullTimeoutMs", "-1", "no whole number of 1 to"),
        ("tags", "||", "names no tag"),
        ("group", "a b", "may hold only the characters"),
        ("startingOffsetsByTimestampStrategy", "nearest", "error or latest"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(option: str, text: str, said: str) -> None:
    """The error names the option, quotes the value, and says what may be."""
    given = {**READ, option: text}
    if option in ("subscribePattern", "assign"):
        del given["subscribe"]
    with pytest.raises(OptionError, match=re.escape(said)) as caught:
        parse_options(given, Use.READ)
    assert option in str(caught.value)
    assert "allowed" in str(caught.value)


@by_row(
    "given, use, said",
    [
        ({**READ, "subscribee": "t"}, Use.READ, "unknown option subscribee; allowed for read: nameServer, subscribe,"),
        ({**READ, "maxOffsetsPerTrigger": "5"}, Use.READ, "maxOffsetsPerTrigger is for readStream, not for read"),
        ({**READ, "endingOffsets": "latest"}, Use.READ_STREAM, "endingOffsets is for read, not for readStream"),
        ({**READ, "topic": "t"}, Use.READ, "the options subscribe and topic are one and the same"),
        ({"subscribe": "t"}, Use.READ, "option nameServer is missing"),
        ({"nameServer": "h:1"}, Use.READ, "exactly one of the options subscribe"),
        ({**READ, "assign": '{"t":[0]}'}, Use.READ, "exactly one of the options subscribe"),
        ({**READ, "startingOffsets": "earliest", "startingTimestamp": "1"}, Use.READ, "contradict each other"),
        ({**READ, "minPartitions": "4", "ordered": "true"}, Use.READ, "minPartitions splits queues"),
        ({**READ, "maxRecordsPerPartition": "4", "ordered": "true"}, Use.READ, "maxRecordsPerPartition splits queues"),
        (
            {**READ, "minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "3"},
            Use.READ_STREAM,
            "minOffsetsPerTrigger is above maxOffsetsPerTrigger",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: dict[str, str], use: Use, said: str) -> None:
    """Unknown ones, those of another use, and those that contradict each other."""
    with pytest.raises(OptionError, match=re.escape(said)):
        parse_options(given, use)


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("30 s", 30_000), ("500ms", 500), ("2H", 7_200_000)])
def test_times_have_units(text: str, ms: int) -> None:
    """As Spark's own options of time."""
    assert parse_options({**READ, "maxTriggerDelay": text}, Use.READ_STREAM).max_trigger_delay_ms == ms


def test_every_option_has_one_field_and_one_meaning() -> None:
    """For each use a name means one option, and every field of Options has a row in the table."""
    for use in Use:
        names = [name for option in OPTIONS if use in option.uses for name in option.lower_names]
        assert len(names) == len(set(names))
    assert {option.field for option in OPTIONS} == set(Options.__slots__)
