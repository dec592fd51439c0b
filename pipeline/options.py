"""The options of `format("lockstep")`: one table of names, aliases, kinds, defaults and uses.

Options that Spark's Kafka source also has keep its names. Case does not matter, as Spark changes it. An unknown option,
or one for another use, is an error that lists the known ones.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from lockstep.client.credentials import credentials_of_environment
from lockstep.client.tls import TLS_MODES, tls_of_environment, tls_of_texts
from lockstep.pipeline.errors import OptionError
from lockstep.pipeline.offsets import Assignment, OffsetSpec, parse_assignment, parse_offsets, parse_timestamps
from lockstep.pipeline.schema import COLUMNS
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.filter import FilterError, parse_tags
from lockstep.protocol.names import check_group, check_topic
from lockstep.protocol.signature import Credentials
from lockstep.remoting.settings import Address, SettingError, parse_addresses
from lockstep.remoting.tls.options import TlsOptions, client_context

__all__ = ["OPTIONS", "Option", "Options", "Use", "parse_option", "parse_options"]


class Use(Enum):
    """What a DataFrame is used for; each use has its own options."""

    READ = "read"
    READ_STREAM = "readStream"
    WRITE = "write"
    WRITE_STREAM = "writeStream"


READS: Final = frozenset({Use.READ, Use.READ_STREAM})
WRITES: Final = frozenset({Use.WRITE, Use.WRITE_STREAM})
ALL: Final = READS | WRITES
_BATCH: Final = frozenset({Use.READ})
_STREAM: Final = frozenset({Use.READ_STREAM})
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_SPARKS_OWN: Final = frozenset({"checkpointlocation"})  # Spark also passes on options of its own
_DURATION: Final = re.compile(r"(\d{1,12})\s*([a-z]*)")


class Option(NamedTuple):
    """A row of the table.

    `field` is its name in `Options`. `kind` turns the text into a value, or raises ValueError that says what is
    allowed. `allowed` is the same for documentation.
    """

    name: str
    field: str
    kind: Callable[[str], Any]
    uses: frozenset[Use]
    allowed: str
    aliases: tuple[str, ...] = ()

    @property
    def lower_names(self) -> tuple[str, ...]:
        """Spark does not keep the case of names."""
        return tuple(name.lower() for name in (self.name, *self.aliases))


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise ValueError("it names no topic")
    for name in names:
        check_topic(name)
    return names


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise ValueError("it names no column")
    return names


def _source_columns(text: str) -> tuple[str, ...]:
    names = _columns(text)
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name}")
    return names


def _group(text: str) -> str:
    check_group(text)
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    return _text(text)


def _boolean(text: str) -> bool:
    values = {"true": True, "false": False}
    if (value := values.get(text.strip().lower())) is None:
        raise ValueError("it is neither true nor false")
    return value


def _number(minimum: int, maximum: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        bare = text.strip()
        if not (bare.isascii() and bare.isdecimal() and len(bare) <= 19 and minimum <= int(bare) <= maximum):
            raise ValueError(f"it is no whole number of {minimum} to {maximum}")
        return int(bare)

    return parse


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ValueError("it is no time")
    return int(found[1]) * _UNITS_MS[found[2]]


def _timestamp(text: str) -> OffsetSpec:
    return OffsetSpec("timestamp", timestamp_ms=_number(0)(text))


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if (value := text.strip().lower()) not in allowed:
            raise ValueError("it is none of them")
        return value

    return parse


def _tags(text: str) -> str:
    parse_tags(text)
    return text


def _key(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


_OFFSETS: Final = (
    'JSON of every queue: {"topic":{"broker-a":{"0":23,"1":-2}}}, or {"topic":{"0":23,"1":-2}} where one broker has '
    "the topic; -2 is earliest, -1 latest"
)
_TIMES: Final = 'JSON of every queue, in epoch milliseconds: {"topic":{"broker-a":{"0":1700000000000}}}'

OPTIONS: Final = (
    # Servers and topics
    Option("nameServer", "name_servers", parse_addresses, ALL, "host:port, several with ;", ("nameserver.address",)),
    Option("subscribe", "topics", _topics, READS, "topics, several with a comma", ("topic",)),
    Option("subscribePattern", "pattern", _pattern, READS, "a regular expression that whole topic names match"),
    Option("assign", "assign", parse_assignment, READS, 'JSON: {"topic":[0,1]} or {"topic":{"broker-a":[0,1]}}'),
    Option("topic", "topic", lambda text: _topics(text)[0], WRITES, "one topic, instead of the column"),
    Option("group", "group", _group, ALL, "a group's name", ("kafka.group.id", "consumerGroup", "producerGroup")),
    Option("accessKey", "access_key", _key, ALL, "the account for brokers with ACL, with secretKey"),
    Option("secretKey", "secret_key", _key, ALL, "the secret of accessKey"),
    Option("tls", "tls_mode", _choice(*TLS_MODES), ALL, "on, unverified (any server is believed) or off"),
    Option("tls.ca", "tls_ca", _text, ALL, "a file of certificates that sign servers; without it, the system's"),
    Option("tls.cert", "tls_cert", _text, ALL, "a file with the client's certificate"),
    Option("tls.key", "tls_key", _text, ALL, "a file with its key; without it, the file of tls.cert"),
    # First and last offsets
    Option("startingOffsets", "starting", parse_offsets, READS, f"earliest, latest, or {_OFFSETS}"),
    Option("startingTimestamp", "starting_time", _timestamp, READS, "epoch milliseconds"),
    Option("startingOffsetsByTimestamp", "starting_times", parse_timestamps, READS, _TIMES),
    Option("startingOffsetsByTimestampStrategy", "starting_strategy", _choice("error", "latest"), READS,
           "error or latest: where a queue has nothing of that time or later"),
    Option("endingOffsets", "ending", parse_offsets, _BATCH, f"latest, or {_OFFSETS}"),
    Option("endingTimestamp", "ending_time", _timestamp, _BATCH, "epoch milliseconds"),
    Option("endingOffsetsByTimestamp", "ending_times", parse_timestamps, _BATCH, _TIMES),
    Option("failOnDataLoss", "fail_on_data_loss", _boolean, READS, "true or false"),
    # Limits
    Option("maxOffsetsPerTrigger", "max_offsets", _number(1), _STREAM, "a number of messages, 1 or more"),
    Option("minOffsetsPerTrigger", "min_offsets", _number(1), _STREAM, "a number of messages, 1 or more"),
    Option("maxTriggerDelay", "max_trigger_delay_ms", _duration_ms, _STREAM, "a time: 15m, 30s, 500ms"),
    Option("minPartitions", "min_partitions", _number(1, 100_000), READS, "a number of Spark partitions, 1 or more"),
    Option("maxRecordsPerPartition", "max_records", _number(1), READS, "a number of messages, 1 or more"),
    Option("ordered", "ordered", _boolean, _BATCH, "true or false: a queue is never split"),
    # Columns and filters
    Option("columns", "columns", _source_columns, READS, f"columns, several with a comma: {', '.join(COLUMNS)}"),
    Option("includeProperties", "include_properties", _boolean, READS, "true or false", ("includeHeaders",)),
    Option("tags", "tags", _tags, READS, "TagA || TagB, or *"),
    Option("pushFilters", "push_filters", _boolean, _BATCH,
           "true or false; needs spark.sql.python.filterPushdown.enabled=true"),
    # Requests
    Option("pullTimeoutMs", "pull_timeout_ms", _number(1, 3_600_000), READS, "milliseconds, 1 to an hour",
           ("kafkaConsumer.pollTimeoutMs",)),
    Option("pullBatchSize", "pull_batch_size", _number(1, 1_000_000), READS, "a number of messages, 1 or more"),
    Option("fetchOffset.numRetries", "retries", _number(0, 1000), READS, "a number, 0 or more", ("numRetries",)),
    Option("fetchOffset.retryIntervalMs", "retry_interval_ms", _number(0, 3_600_000), READS,
           "milliseconds, up to an hour", ("retryIntervalMs",)),
    # Sending
    Option("sendTimeoutMs", "send_timeout_ms", _number(1, 3_600_000), WRITES, "milliseconds, 1 to an hour"),
    Option("sendBatchSize", "send_batch_size", _number(1, 100_000), WRITES, "a number of messages, 1 or more"),
    Option("sendRetries", "send_retries", _number(0, 1000), WRITES, "a number, 0 or more",
           ("retryTimesWhenSendFailed", "numRetries")),
    Option("retryIntervalMs", "retry_interval_ms", _number(0, 3_600_000), WRITES, "milliseconds, up to an hour"),
    Option("orderBy", "order_by", _columns, WRITES, "columns, several with a comma, in which the rows of a key rise"),
    Option("checkKeys", "check_keys", _boolean, WRITES, "true or false: a key in two partitions is an error"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options, with the defaults of RocketMQ and of Spark's own sources. Times are milliseconds."""

    name_servers: tuple[Address, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Assignment | None = None
    topic: str | None = None
    group: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    tls_mode: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    starting: OffsetSpec | None = None
    starting_time: OffsetSpec | None = None
    starting_times: OffsetSpec | None = None
    starting_strategy: str = "error"
    ending: OffsetSpec | None = None
    ending_time: OffsetSpec | None = None
    ending_times: OffsetSpec | None = None
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int = 1
    max_records: int | None = None
    ordered: bool = False
    columns: tuple[str, ...] = ()
    include_properties: bool = False
    tags: str = "*"
    push_filters: bool = False
    pull_timeout_ms: int = 3_000
    pull_batch_size: int = 4_096
    retries: int = 3
    retry_interval_ms: int = 100
    send_timeout_ms: int = 3_000
    send_batch_size: int = 1_000
    send_retries: int = 5
    order_by: tuple[str, ...] = ()
    check_keys: bool = True

    @property
    def credentials(self) -> Credentials | None:
        """The account of the options, or else of the driver's environment."""
        if self.access_key is None or self.secret_key is None:
            return credentials_of_environment()
        return Credentials(self.access_key, self.secret_key)

    @property
    def tls(self) -> TlsOptions | None:
        """How the options, or else the driver's environment, say. Raises SettingError for a wrong environment."""
        given = (self.tls_mode, self.tls_ca, self.tls_cert, self.tls_key)
        return tls_of_texts(*given) if any(given) else tls_of_environment()


def parse_options(given: Mapping[str, str], use: Use) -> Options:
    """Raises OptionError that names the option and says what is allowed."""
    table = {name: option for option in OPTIONS if use in option.uses for name in option.lower_names}
    values: dict[str, Any] = {}
    named: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() in _SPARKS_OWN:
            continue
        option = table.get(name.lower())
        if option is None:
            raise _unknown(name, use)
        if option.field in named:
            raise OptionError(f"the options {named[option.field]} and {name} are one and the same: give one of them")
        named[option.field] = name
        values[option.field] = _value(option, text)
    options = Options(**values)
    _check(options, use)
    return options


def parse_option(name: str, given: Mapping[str, str]) -> Any:
    """The value of one option under any of its names, or None. Raises OptionError."""
    (option,) = [option for option in OPTIONS if option.name == name]
    text = next((text for key, text in given.items() if key.lower() in option.lower_names), None)
    return None if text is None else _value(option, text)


def _value(option: Option, text: str) -> Any:
    try:
        return option.kind(text)
    except (ValueError, FilterError, LocalProtocolError, SettingError) as error:
        raise OptionError(f"option {option.name}: {text!r} cannot be: {error}; allowed: {option.allowed}") from None


def _unknown(name: str, use: Use) -> OptionError:
    other = [option for option in OPTIONS if name.lower() in option.lower_names]
    allowed = ", ".join(option.name for option in OPTIONS if use in option.uses)
    if other:
        uses = ", ".join(sorted(use.value for option in other for use in option.uses))
        return OptionError(f"option {name} is for {uses}, not for {use.value}; allowed for {use.value}: {allowed}")
    return OptionError(f"unknown option {name}; allowed for {use.value}: {allowed}")


_ALTERNATIVES: Final = (
    ("starting", "starting_time", "starting_times"),
    ("ending", "ending_time", "ending_times"),
)


def _check(options: Options, use: Use) -> None:
    """Rules about several options."""
    if not options.name_servers:
        raise OptionError('option nameServer is missing: option("nameServer", "host:9876")')
    if (options.access_key is None) != (options.secret_key is None):
        raise OptionError("options accessKey and secretKey go together: give both")
    try:
        if options.tls is not None:
            client_context(options.tls)  # executors make one of their own, from files of the same names
    except SettingError as error:
        raise OptionError(str(error)) from None
    if use in READS:
        _check_read(options)


def _check_read(options: Options) -> None:
    sources = [bool(options.topics), options.pattern is not None, options.assign is not None]
    if sum(sources) != 1:
        raise OptionError("give exactly one of the options subscribe (or topic), subscribePattern and assign")
    for fields in _ALTERNATIVES:
        names = [option.name for option in OPTIONS if option.field in fields and getattr(options, option.field)]
        if len(names) > 1:
            raise OptionError(f"the options {' and '.join(names)} contradict each other: give one of them")
    for name, splits in (
        ("minPartitions", options.min_partitions > 1),
        ("maxRecordsPerPartition", options.max_records is not None),
    ):
        if options.ordered and splits:
            raise OptionError(f"option {name} splits queues, which ends the order that option ordered asks for")
    if options.ending is not None and options.ending.kind == "earliest":
        raise OptionError(f"option endingOffsets: 'earliest' cannot be; allowed: latest, or {_OFFSETS}")
    if options.min_offsets and options.max_offsets and options.min_offsets > options.max_offsets:
        raise OptionError("option minOffsetsPerTrigger is above maxOffsetsPerTrigger: no batch could be both")
