"""Quantities with units, by Pint. Requests:

{"op": "read", "quantity": …} -> "1.5 meter", or null if it is no quantity
{"op": "same", "gold": …, "given": …, "relative": …, "absolute": …} -> true or false

A quantity is {"number": "1.5e3", "unit": "m/s"}; an empty unit is none.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves it out

from pint import UnitRegistry
from worker import serve

units = UnitRegistry(autoconvert_offset_to_baseunit=True, cache_folder=None)


def read(quantity):
    number = float(quantity["number"])
    try:
        # Units only: an expression could hold powers that take for ever.
        return units.Quantity(number, units.parse_units(quantity["unit"]))
    except Exception:
        return None


def same(gold_text, given_text, relative, absolute):
    gold, given = read(gold_text), read(given_text)
    if gold is None:
        raise ValueError(f"the gold answer has no known unit: {gold_text['unit'][:100]}")
    gold.to(gold.units)  # if that cannot be done, the task is at fault
    try:
        if given is None or gold.dimensionality != given.dimensionality:
            return False
        converted = given.to(gold.units).magnitude
    except Exception:
        return False  # of no unit that could be converted, such as a product of temperatures
    return abs(converted - gold.magnitude) <= max(absolute, relative * abs(gold.magnitude))


def answer(request):
    if request["op"] == "same":
        return bool(same(request["gold"], request["given"], request["relative"], request["absolute"]))
    quantity = read(request["quantity"])
    return None if quantity is None else str(quantity)


# Loads what the first request would wait for.
same({"number": "1", "unit": "m"}, {"number": "100", "unit": "cm"}, 0, 1e-9)
serve(answer)
