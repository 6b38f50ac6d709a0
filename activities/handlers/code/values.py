"""Python values as JSON, between a problem's tests and a solution that runs elsewhere. Nothing that is read runs."""

import base64
import json
import sys
from collections import Counter, deque

sys.set_int_max_str_digits(0) if hasattr(sys, "set_int_max_str_digits") else None
sys.setrecursionlimit(5000)
MOST_ITEMS = 1_000_000
MOST_DIGITS = 100_000
EXACT = (("decimal", "Decimal"), ("fractions", "Fraction"))


class Unsupported(Exception):
    """A value that cannot be carried."""


class Ref:
    """A result that stayed where it was made: of the call with this number."""

    __slots__ = ("call",)

    def __init__(self, call):
        object.__setattr__(self, "call", call)

    def __setattr__(self, name, value):
        raise Unsupported("tests change an object of the solution")


def encode(value):
    if value is None or isinstance(value, bool):
        return value if value is None else bool(value)
    # What reads and writes JSON on the way knows one kind of number.
    if isinstance(value, int):
        return int(value) if abs(value) < 2**53 else {"int": str(int(value))}
    if isinstance(value, float):
        return {"float": repr(float(value))}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Ref):
        return {"ref": value.call}
    if isinstance(value, list):
        return [encode(item) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in tuple.__iter__(value)]}
    for kind, name in ((set, "set"), (frozenset, "frozenset"), (deque, "deque")):
        if isinstance(value, kind):
            return {name: [encode(item) for item in kind.__iter__(value)]}
    if isinstance(value, dict):
        name = "counter" if isinstance(value, Counter) else "dict"
        return {name: [[encode(key), encode(dict.__getitem__(value, key))] for key in dict.__iter__(value)]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    for module, name in EXACT:  # imported only where one is: that takes as long as Python's start
        if module in sys.modules and isinstance(value, getattr(sys.modules[module], name)):
            return {name.lower(): str(value)}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if hasattr(value, "__next__"):
        items = []
        for item in value:
            items.append(encode(item))
            if len(items) > MOST_ITEMS:
                raise Unsupported("an iterator without an end")
        return {"iterator": items}
    raise Unsupported(f"a {type(value).__name__}")


def whole(text):
    """Reading digits takes the square of their number; a solution may send any."""
    if len(text) > MOST_DIGITS:
        raise ValueError("a number of too many digits")
    return int(text)


def fraction(text):
    # Without an exponent, which could stand for any number of digits.
    numerator, _, denominator = text.partition("/")
    return __import__("fractions").Fraction(whole(numerator), whole(denominator or "1"))


DECODE = {
    "int": lambda text, refs: whole(text),
    "float": lambda text, refs: float(text),
    "json": lambda text, refs: json.loads(text),
    "tuple": lambda items, refs: tuple(decode(item, refs) for item in items),
    "set": lambda items, refs: {decode(item, refs) for item in items},
    "frozenset": lambda items, refs: frozenset(decode(item, refs) for item in items),
    "deque": lambda items, refs: deque(decode(item, refs) for item in items),
    "dict": lambda items, refs: {decode(key, refs): decode(value, refs) for key, value in items},
    "counter": lambda items, refs: Counter({decode(key, refs): decode(value, refs) for key, value in items}),
    "complex": lambda parts, refs: complex(*parts),
    "bytes": lambda text, refs: base64.b64decode(text),
    "decimal": lambda text, refs: __import__("decimal").Decimal(text),
    "fraction": lambda text, refs: fraction(text),
    "range": lambda parts, refs: range(*parts),
    "iterator": lambda items, refs: iter([decode(item, refs) for item in items]),
    "ref": lambda call, refs: refs(call),
}


def decode(value, refs=Ref):
    if isinstance(value, list):
        return [decode(item, refs) for item in value]
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        return DECODE[kind](content, refs)
    return value
