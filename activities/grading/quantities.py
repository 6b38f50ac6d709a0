"""Quantities with units, by Pint. Requests:

{"op": "read", "quantity": …} -> "1.5 meter", or null if it is no quantity
{"op": "same", "gold": …, "given": …, "relative": …, "absolute": …} -> true or false

A quantity is {"number": "1.5e3", "unit": "m/s"}; an empty unit is none.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves it out

from pint import UnitRegistry
from worker import serve

units = UnitRegistry(autoconvert_offset_to_baseunit=True, cache_folder=None)


def readings(unit):
    """As it stands; with names as they begin sentences; and what follows a stroke below it: J/mol K is J/(mol K) to most."""
    plain = re.sub(r"\b[A-Z][a-z]{3,}\b", lambda name: name[0].lower(), unit)
    below = [re.sub(r"/([^/()]+)", r"/(\1)", one) for one in (unit, plain)]
    return list(dict.fromkeys([unit, plain, *below]))


def read(quantity):
    number = float(quantity["number"])
    found = []
    for unit in readings(quantity["unit"]):
        try:
            # Units only: an expression could hold powers that take for ever.
            found.append(units.Quantity(number, units.parse_units(unit)))
        except Exception:
            continue
    return found


def same(gold_text, given_text, relative, absolute):
    golds, givens = read(gold_text), read(given_text)
    if not golds:
        raise ValueError(f"the gold answer has no known unit: {gold_text['unit'][:100]}")
    for gold in golds:
        gold.to(gold.units)  # if that cannot be done, the task is at fault
    return any(near(gold, given, relative, absolute) for gold in golds for given in givens)


def near(gold, given, relative, absolute):
    try:
        if gold.dimensionality != given.dimensionality:
            return False
        converted = given.to(gold.units).magnitude
    except Exception:
        return False  # of no unit that could be converted, such as a product of temperatures
    return abs(converted - gold.magnitude) <= max(absolute, relative * abs(gold.magnitude))


def answer(request):
    if request["op"] == "same":
        return bool(same(request["gold"], request["given"], request["relative"], request["absolute"]))
    quantities = read(request["quantity"])
    return str(quantities[0]) if quantities else None


# Loads what the first request would wait for.
same({"number": "1", "unit": "m"}, {"number": "100", "unit": "cm"}, 0, 1e-9)
serve(answer)
