"""SQL92 filter expressions, compiled to functions over a message's properties.

The grammar is the Java broker's (store-and-broker.md 7.9), with two of its oddities kept because expressions in use
rely on them: NOT binds tighter than a comparison, and a bare property is never TRUE. One is not: text after a complete
expression is an error here, where Java ignores it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rmq.filter.lexer import ExpressionError, Kind, Token, tokens
from rmq.filter.values import Long, Value, equal, order

__all__ = ["ExpressionError", "SqlFilter", "compile_sql", "is_compiled"]

Properties = Mapping[str, str]
Eval = Callable[[Properties], Value]

_DEEPEST = 200
#: Fits into 64 bits behind a minus only.
_LEAST_MAGNITUDE = str(1 << 63)
#: Characters of an expression, and words, values and signs: 10 to 15 ms of the loop.
_LONGEST = 16 * 1024
_MOST_TOKENS = 4_000


@dataclass(frozen=True, slots=True)
class _Node:
    """A piece of an expression: how to evaluate it, and what is known of it when compiling."""

    eval: Eval
    at: int
    #: TRUE, FALSE, NULL, a comparison or a logical expression.
    boolean: bool = False
    #: A literal; ``value`` is its value then.
    constant: bool = False
    value: Value = None
    #: The name, for a bare property.
    name: str | None = None


class SqlFilter:
    """A compiled expression."""

    __slots__ = ("_eval", "text")

    def __init__(self, text: str, evaluate: Eval) -> None:
        self.text = text
        self._eval = evaluate

    @property
    def weight(self) -> int:
        """How long it takes to evaluate, in characters."""
        return len(self.text)

    def matches(self, properties: Properties) -> bool:
        """Whether the expression is TRUE of a message; an error while evaluating means no."""
        try:
            return self._eval(properties) is True
        except (ValueError, TypeError, OverflowError):
            return False


def compile_sql(text: str) -> SqlFilter:
    """Compile an expression; the last ones are remembered, those that do not compile, too (:class:`_Remembered`).

    :raises ExpressionError: with the position of what is wrong.
    """
    if len(text) > _LONGEST:
        raise ExpressionError(f"an expression of {len(text)} characters (at most {_LONGEST})", text, 0)
    made = _compiled(text)
    if isinstance(made, _Fault):
        raise ExpressionError(made.what, text, made.at)
    return made


class _Fault(NamedTuple):
    what: str
    at: int


class _Remembered:
    """The expressions that were asked for last.

    What one takes in memory grows with its text, a hundred times as much: so many characters of them are kept.
    """

    def __init__(self, most: int, characters: int) -> None:
        self._most = most
        self._characters = characters
        self._kept: OrderedDict[str, SqlFilter | _Fault] = OrderedDict()
        self._size = 0

    def __contains__(self, text: object) -> bool:
        return text in self._kept

    def __call__(self, text: str) -> SqlFilter | _Fault:
        kept = self._kept
        made = kept.get(text)
        if made is not None:
            kept.move_to_end(text)
            return made
        try:
            made = SqlFilter(text, _Parser(text).parse())
        except ExpressionError as error:
            made = _Fault(error.what, error.position - 1)
        kept[text] = made
        self._size += len(text)
        while len(kept) > 1 and (len(kept) > self._most or self._size > self._characters):
            self._size -= len(kept.popitem(last=False)[0])
        return made

    def cache_clear(self) -> None:
        """Forget all of them."""
        self._kept.clear()
        self._size = 0


_compiled = _Remembered(most=1024, characters=1 << 20)


def is_compiled(text: str) -> bool:
    """Whether :func:`compile_sql` remembers an expression, or refuses it unread."""
    return text in _compiled or len(text) > _LONGEST


_LESS = order(lambda c: c < 0)
_LESS_EQUAL = order(lambda c: c <= 0)
_MORE = order(lambda c: c > 0)
_MORE_EQUAL = order(lambda c: c >= 0)
_ORDERS = {"<": _LESS, "<=": _LESS_EQUAL, ">": _MORE, ">=": _MORE_EQUAL}


class _Parser:
    """Recursive descent over the tokens, building the function as it goes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        if len(self._tokens) > _MOST_TOKENS:
            raise self._error(f"an expression of more than {_MOST_TOKENS} words, values and signs", 0)
        self._next = 0
        self._depth = 0
        self._links = 0

    def parse(self) -> Eval:
        node = self._boolean(self._or())
        token = self._peek()
        if token.kind != Kind.END:
            words = [later.text.upper() for later in self._tokens[self._next : self._next + 2]]
            hint = " (write STARTSWITH, ENDSWITH or CONTAINS)" if "LIKE" in words else ""
            raise self._error(f"unexpected {token.text!r} after a complete expression{hint}", token.at)
        return node.eval

    # -- tokens

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self, kind: str, *texts: str) -> Token | None:
        token = self._tokens[self._next]
        if token.kind == kind and (not texts or token.text in texts):
            self._next += 1
            return token
        return None

    def _need(self, kind: str, *texts: str) -> Token:
        token = self._take(kind, *texts)
        if token is None:
            found = self._peek()
            wanted = " or ".join(repr(text) for text in texts) or kind
            raise self._error(
                f"expected {wanted}, found {found.text!r}" if found.text else f"expected {wanted}", found.at
            )
        return token

    def _error(self, what: str, at: int) -> ExpressionError:
        return ExpressionError(what, self._text, at)

    def _boolean(self, node: _Node) -> _Node:
        """A node where a condition is needed; a bare property becomes one that is never TRUE."""
        if node.boolean:
            return node
        if node.name is not None:
            name = node.name
            return _Node(lambda p: None if p.get(name) is None else False, node.at, boolean=True)
        raise self._error("a condition is needed here, not a value", node.at)

    # -- grammar

    def _or(self) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} nested parentheses", self._peek().at)
        node = self._chain("OR", self._and, decides=True)
        self._depth -= 1
        return node

    def _and(self) -> _Node:
        return self._chain("AND", self._equality, decides=False)

    def _chain(self, word: str, operand: Callable[[], _Node], *, decides: bool) -> _Node:
        node = operand()
        first = self._take(Kind.WORD, word)
        if first is None:
            return node
        terms = [self._boolean(node).eval, self._boolean(operand()).eval]
        while self._take(Kind.WORD, word):
            terms.append(self._boolean(operand()).eval)
        return _joined(tuple(terms), decides, first.at)

    def _equality(self) -> _Node:
        node = self._comparison()
        links = 0
        while True:
            if links > 1:  # each compares what the last one found, and is evaluated within it
                self._links += 1
                if self._links > _DEEPEST:
                    raise self._error(f"more than {_DEEPEST} comparisons of comparisons", self._peek().at)
            links += 1
            if token := self._take(Kind.SIGN, "=", "<>"):
                node = self._equals(node, self._comparison(), token)
            elif token := self._take(Kind.WORD, "IS"):
                negated = self._take(Kind.WORD, "NOT") is not None
                self._need(Kind.WORD, "NULL")
                node = _is_null(node, negated, token.at)
            else:
                return node

    def _equals(self, left: _Node, right: _Node, token: Token) -> _Node:
        for side in (left, right):
            if side.constant and side.value is None:
                raise self._error(f"NULL cannot be compared with {token.text} (write IS NULL)", side.at)
        if left.constant and isinstance(left.value, bool) and right.constant and not isinstance(right.value, bool):
            raise self._error("a boolean constant cannot be compared with this one", right.at)
        if isinstance(left.value, bool) and right.name is not None:
            # TRUE = a is a = TRUE, of missing properties, too (field case B064).
            left, right = right, left
        return _equal(left.eval, right.eval, token.text == "<>", token.at)

    def _comparison(self) -> _Node:
        node = self._unary()
        while True:
            if token := self._take(Kind.SIGN, "<", "<=", ">", ">="):
                right = self._unary()
                self._orderable(node)
                self._orderable(right)
                node = _ordered(token.text, node.eval, right.eval, token.at)
                continue
            start = self._next
            negated = self._take(Kind.WORD, "NOT") is not None
            if token := self._take(Kind.WORD, "BETWEEN"):
                node = self._between(node, negated, token.at)
            elif token := self._take(Kind.WORD, "IN"):
                node = self._in(node, negated, token.at)
            elif token := self._take(Kind.WORD, "CONTAINS", "STARTSWITH", "ENDSWITH"):
                node = self._matching(node, token, negated)
            else:
                self._next = start
                return node

    def _orderable(self, node: _Node) -> None:
        if node.boolean:
            raise self._error("a condition, TRUE, FALSE or NULL cannot be ordered", node.at)
        if node.constant and isinstance(node.value, str):
            raise self._error("a string cannot be ordered (compare with a number)", node.at)

    def _between(self, node: _Node, negated: bool, at: int) -> _Node:
        low = self._unary()
        self._need(Kind.WORD, "AND")
        high = self._unary()
        for side in (node, low, high):
            self._orderable(side)
        if low.constant and high.constant and _MORE(low.value, high.value):
            raise self._error(f"BETWEEN {low.value} AND {high.value}: the lower bound is the higher one", low.at)
        return _between(node.eval, low.eval, high.eval, negated, at)

    def _in(self, node: _Node, negated: bool, at: int) -> _Node:
        if node.name is None:
            raise self._error("IN needs a property on its left", node.at)
        self._need(Kind.SIGN, "(")
        texts = {self._need(Kind.STRING).text}
        while self._take(Kind.SIGN, ","):
            texts.add(self._need(Kind.STRING).text)
        self._need(Kind.SIGN, ")")
        return _is_in(node.name, frozenset(texts), negated, at)

    def _matching(self, node: _Node, token: Token, negated: bool) -> _Node:
        if node.name is None:
            raise self._error(f"{token.text} needs a property on its left", node.at)
        part = self._need(Kind.STRING).text
        return _matching(node.name, token.text, part, negated, token.at)

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} nested parentheses", self._peek().at)
        try:
            if self._take(Kind.SIGN, "+"):
                return self._unary()
            if token := self._take(Kind.SIGN, "-"):
                if self._peek().text.rstrip("lL") == _LEAST_MAGNITUDE and self._take(Kind.INTEGER):
                    return _literal(Long(-(1 << 63)), token.at)
                return _negative(self._unary().eval, token.at)
            if token := self._take(Kind.WORD, "NOT"):
                return _not(self._boolean(self._unary()), token.at)
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> _Node:
        token = self._peek()
        if self._take(Kind.SIGN, "("):
            node = self._or()
            self._need(Kind.SIGN, ")")
            return node
        if self._take(Kind.NAME):
            name = token.text
            return _Node(lambda p: p.get(name), token.at, name=name)
        if self._take(Kind.STRING):
            return _literal(token.text, token.at)
        if self._take(Kind.INTEGER):
            return _literal(self._integer(token), token.at)
        if self._take(Kind.FLOAT):
            value = float(token.text)
            if value == float("inf"):
                raise self._error(f"{token.text} is outside the range of numbers", token.at)
            return _literal(value, token.at)
        if self._take(Kind.WORD, "TRUE", "FALSE", "NULL"):
            value_of = {"TRUE": True, "FALSE": False, "NULL": None}
            return _literal(value_of[token.text], token.at, boolean=True)
        raise self._error(f"unexpected {token.text!r}" if token.text else "the expression ends too soon", token.at)

    def _integer(self, token: Token) -> int:
        text = token.text.rstrip("lL")
        value = int(text) if len(text) < 20 else 1 << 63
        if value >= 1 << 63:
            raise self._error(f"{text} does not fit into 64 bits", token.at)
        return value if value < 1 << 31 else Long(value)


def _literal(value: Value, at: int, *, boolean: bool = False) -> _Node:
    return _Node(lambda p: value, at, boolean=boolean, constant=True, value=value)


def _joined(terms: tuple[Eval, ...], decides: bool, at: int) -> _Node:
    """Conditions joined by OR, where TRUE decides, or by AND, where FALSE does: looked at in order, as far as needed.

    In a loop, as a chain may have a thousand of them.
    """

    def evaluate(p: Properties) -> Value:
        found: Value = not decides
        for term in terms:
            x = term(p)
            if x is decides:
                return decides
            if x is None:
                found = None
        return found

    return _Node(evaluate, at, boolean=True)


def _not(node: _Node, at: int) -> _Node:
    inner = node.eval

    def evaluate(p: Properties) -> Value:
        x = inner(p)
        return None if x is None else x is not True

    return _Node(evaluate, at, boolean=True)


def _is_null(node: _Node, negated: bool, at: int) -> _Node:
    inner = node.eval
    return _Node(lambda p: (inner(p) is None) is not negated, at, boolean=True)


def _equal(a: Eval, b: Eval, negated: bool, at: int) -> _Node:
    def evaluate(p: Properties) -> Value:
        same = equal(a(p), b(p))
        return same if same is None or not negated else not same

    return _Node(evaluate, at, boolean=True)


def _ordered(sign: str, a: Eval, b: Eval, at: int) -> _Node:
    test = _ORDERS[sign]
    return _Node(lambda p: test(a(p), b(p)), at, boolean=True)


def _between(value: Eval, low: Eval, high: Eval, negated: bool, at: int) -> _Node:
    first, second = (_LESS, _MORE) if negated else (_MORE_EQUAL, _LESS_EQUAL)
    return _joined((lambda p: first(value(p), low(p)), lambda p: second(value(p), high(p))), negated, at)


def _is_in(name: str, texts: frozenset[str], negated: bool, at: int) -> _Node:
    def evaluate(p: Properties) -> Value:
        value = p.get(name)
        return None if value is None else (value in texts) is not negated

    return _Node(evaluate, at, boolean=True)


def _matching(name: str, how: str, part: str, negated: bool, at: int) -> _Node:
    def evaluate(p: Properties) -> Value:
        value = p.get(name)
        if value is None or not part:
            return False  # the NOT forms, too
        if how == "CONTAINS":
            found = part in value
        elif how == "STARTSWITH":
            found = value.startswith(part)
        else:
            found = value.endswith(part)
        return found is not negated

    return _Node(evaluate, at, boolean=True)


def _negative(inner: Eval, at: int) -> _Node:
    def evaluate(p: Properties) -> Value:
        value = inner(p)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return _Node(evaluate, at)
