"""Whether two answers are mathematically the same, by Math-Verify. Requests:

{"op": "parse", "text": …}            -> what it reads as, and can be compared as; or null if it is no mathematics
{"op": "same", "gold": …, "given": …} -> true or false
"""

import logging
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves it out

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, Float, UnevaluatedExpr
from worker import serve

logging.disable(logging.WARNING)  # that its limits by alarm are off, as they must be
CONFIG = [LatexExtractionConfig()]
# Math-Verify compares numbers to so many decimal places, whatever their size: 1/2004! would be 1/2006!. Where
# both are numbers, they must also agree relative to their size: exact ones to 15 digits, decimals as 1/3 and
# 0.333333 do.
EXACT, DECIMAL = 1e-15, 5e-6


def read(text):
    # No fallback to the text itself, and no limit by alarm: whoever asks ends what takes too long.
    return parse(f"${text}$", CONFIG, fallback_mode="no_fallback", parsing_timeout=None)


def number(expressions):
    """The number that a parse result is, if it is one and no percentage."""
    if len(expressions) != 1 or not isinstance(expressions[0], Basic):
        return None
    expression = expressions[0]
    if not getattr(expression, "is_number", False) or expression.has(UnevaluatedExpr):
        return None
    return expression.doit()


def agree(gold, given):
    if gold == given:
        return True
    tolerance = DECIMAL if gold.has(Float) or given.has(Float) else EXACT
    difference, size = (gold - given).evalf(30), max(abs(gold.evalf(30)), abs(given.evalf(30)))
    return bool(abs(difference) <= tolerance * size)


def same(gold_text, given_text):
    gold, given = read(gold_text), read(given_text)
    if not gold:
        raise ValueError(f"the gold answer is no mathematics: {gold_text[:200]}")
    if not given or not verify(gold, given, allow_set_relation_comp=True, timeout_seconds=None):
        return False
    numbers = number(gold), number(given)
    return True if None in numbers else agree(*numbers)


def answer(request):
    if request["op"] == "same":
        return same(request["gold"], request["given"])
    parsed = read(request["text"])
    if parsed:
        same(request["text"], "1")
    return str(parsed[0]) if parsed else None


# Loads what the first request would wait for.
same("1", "2")
serve(answer)
