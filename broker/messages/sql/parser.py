"""The grammar of RocketMQ 4.9's SQL92 filters, and `compile_sql`, which compiles an expression.

    size > 3 AND color IN ('red', 'blue') OR NOT (price BETWEEN 1 AND 2.5) AND owner IS NOT NULL

Keywords may have letters of any case; names are case-sensitive. Spaces and comments, from `--` to the end of a line or
inside `/* */`, are allowed between any two words.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from lockstep.broker.messages.sql import expressions
from lockstep.broker.messages.sql.errors import NoAnswer
from lockstep.broker.messages.sql.expressions import Constant, Part, Property, Truth, constant, truth
from lockstep.broker.messages.sql.java_values import LONG_MAX
from lockstep.protocol.errors import short_text
from lockstep.protocol.filter import FilterError

__all__ = ["Evaluator", "compile_sql"]

Evaluator = Callable[[Mapping[str, str]], bool | None]
"""The properties of a message -> whether it matches; None: unknown, which is no match."""

_GRAMMAR: Final = r"""
start: any LAST_COMMENT?

?any: all (_OR all)*
?all: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison -> equal
    | equality _NOT_EQUAL comparison -> not_equal
    | equality _IS _NULL -> is_null
    | equality _IS _NOT _NULL -> is_not_null
?comparison: sign
    | comparison ORDER sign -> order
    | comparison _BETWEEN sign _AND sign -> between
    | comparison _NOT _BETWEEN sign _AND sign -> not_between
    | comparison _IN "(" TEXT ("," TEXT)* ")" -> is_in
    | comparison _NOT _IN "(" TEXT ("," TEXT)* ")" -> is_not_in
?sign: primary
    | "+" sign
    | "-" sign -> negative
    | _NOT sign -> opposite
?primary: TEXT -> text
    | WHOLE -> whole
    | DECIMAL -> decimal
    | _TRUE -> true
    | _FALSE -> false
    | _NULL -> null
    | NAME -> name
    | "(" any ")"

_NOT_EQUAL.2: "<>"
ORDER: ">=" | "<=" | ">" | "<"
DECIMAL.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
WHOLE: /(?:0|[1-9][0-9]*)l?/i
TEXT: /'(?:''|[^'])*'/
_AND.3: /and(?![a-z0-9_$])/i
_OR.3: /or(?![a-z0-9_$])/i
_NOT.3: /not(?![a-z0-9_$])/i
_BETWEEN.3: /between(?![a-z0-9_$])/i
_IN.3: /in(?![a-z0-9_$])/i
_IS.3: /is(?![a-z0-9_$])/i
_NULL.3: /null(?![a-z0-9_$])/i
_TRUE.3: /true(?![a-z0-9_$])/i
_FALSE.3: /false(?![a-z0-9_$])/i
NAME: /(?!(?:and|or|not|between|in|is|null|true|false)(?![a-z0-9_$]))[a-z_$][a-z0-9_$]*/i

SPACE: /[ \t\n\r\f]+/
LINE_COMMENT.4: /--[^\n\r]*+[\n\r]/
BLOCK_COMMENT.4: /\/\*(?:[^*]|\*(?!\/))*\*\//
LAST_COMMENT: /--[^\n\r]*/
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""


@v_args(inline=True)
class _Parts(Transformer[Token, Part]):
    """Builds the parts during the parse, without recursion, however deep an expression is nested."""

    def start(self, whole: Part, *_comment: Token) -> Part:
        return truth(whole)

    negative = staticmethod(expressions.negative)
    opposite = staticmethod(expressions.opposite)
    is_null = staticmethod(expressions.is_null)
    between = staticmethod(expressions.between)
    not_between = staticmethod(expressions.not_between)
    equal = staticmethod(expressions.equal)

    def any(self, *parts: Part) -> Truth:
        return expressions.any_of(list(parts))

    def all(self, *parts: Part) -> Truth:
        return expressions.all_of(list(parts))

    def not_equal(self, left: Part, right: Part) -> Truth:
        return expressions.opposite(expressions.equal(left, right))

    def is_not_null(self, part: Part) -> Truth:
        return expressions.opposite(expressions.is_null(part))

    def order(self, left: Part, sign: Token, right: Part) -> Truth:
        return expressions.compared(left, str(sign), right)

    def is_in(self, part: Part, *texts: Token) -> Truth:
        return expressions.is_in(part, [_unquoted(text) for text in texts])

    def is_not_in(self, part: Part, *texts: Token) -> Truth:
        return expressions.opposite(self.is_in(part, *texts))

    def sign(self, part: Part) -> Part:
        return part

    def text(self, token: Token) -> Constant:
        return constant(_unquoted(token))

    def whole(self, token: Token) -> Constant:
        digits = token.rstrip("lL")
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise FilterError(f"{short_text(str(token))} is above {LONG_MAX}, the largest whole number")
        return constant(int(digits))

    def decimal(self, token: Token) -> Constant:
        number = float(token)
        if number in (0.0, float("inf")):
            # RocketMQ refuses 0.0 as too small.
            raise FilterError(
                f"{short_text(str(token))} is out of range: a decimal is from 4.9E-324 to 1.7976931348623157E308"
            )
        return constant(number)

    def true(self) -> Constant:
        return constant(True)

    def false(self) -> Constant:
        return constant(False)

    def null(self) -> Constant:
        return constant(None)

    def name(self, token: Token) -> Property:
        return expressions.property_of(str(token))


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


# Our limit: for each one the rest of the line is searched.
_OPEN_COMMENTS_MAX: Final = 200
_LINE_ENDS: Final = re.compile(r"[\n\r]")

_PARSER: Final = Lark(_GRAMMAR, parser="lalr", lexer="contextual", transformer=_Parts())


def compile_sql(expression: str) -> Evaluator:
    """Compile an expression. Raises FilterError, which names the position in the expression."""
    if _LINE_ENDS.split(expression)[-1].count("--") > _OPEN_COMMENTS_MAX:
        raise FilterError(f"the last line has '--' more than {_OPEN_COMMENTS_MAX} times")
    try:
        # The transformer returns a Part; Lark's types only know trees.
        worth = cast("Part", _PARSER.parse(expression)).worth
    except UnexpectedInput as error:
        raise FilterError(_explained(expression, error)) from None

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        try:
            value = worth(properties)
        except NoAnswer:
            return None
        assert value is None or isinstance(value, bool)
        return value

    return evaluate


def _explained(expression: str, error: UnexpectedInput) -> str:
    # Lark's types do not know it.
    place = cast("int", error.pos_in_stream)
    if place >= len(expression) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return "the expression ends where a value, a name or a bracket must follow"
    rest = expression[place:].split(maxsplit=1)
    return f"at character {place + 1}: unexpected {short_text(rest[0] if rest else expression[place])}"
