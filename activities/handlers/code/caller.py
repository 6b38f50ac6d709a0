"""Makes calls of a solution, in a sandbox that holds nothing else. Standard input is one JSON object: the solution's
source and the calls; standard output a line for its loading and one for each call. Follows values.py in one program."""

import json
import os
import sys



def main():
    job = json.load(sys.stdin)
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)  # what the solution reads and prints is no part of this
    sys.stdin = open(0, encoding="utf-8", closefd=False)

    def tell(result):
        results.write(json.dumps(result) + "\n")
        results.flush()

    try:
        code = compile(job["solution"], "solution.py", "exec")
    except (SyntaxError, ValueError) as error:
        tell({"compile": str(error)})
        return
    space = {"__name__": "solution", "__builtins__": __builtins__}
    try:
        exec(code, space)
    except BaseException as error:
        tell({"load": f"{type(error).__name__}: {error}"[:500]})
        return
    tell({"loaded": True})
    made = []
    for call in job["calls"]:
        try:
            args = [decode(arg, made.__getitem__) for arg in call["args"]]
            named = {name: decode(arg, made.__getitem__) for name, arg in call["named"].items()}
            value = find(space, call["name"])(*args, **named)
            made.append(value)
        except BaseException as error:
            made.append(None)
            tell({"raised": type(error).__name__, "text": str(error)[:500]})
            continue
        try:
            result = {"value": encode(value)}
        except BaseException:
            result = {"opaque": True}
        tell(result)


def find(space, name):
    if name not in space and "Solution" in space:
        return getattr(space["Solution"](), name)
    return space[name]


main()
os._exit(0)
