"""Prints the milliseconds of each of N runs of a command in one session of SWE-ReX's local runtime, as JSON."""

import asyncio
import json
import sys
import time

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.local import LocalRuntime


async def main(n: int, command: str) -> None:
    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest())
    for _ in range(3):
        await runtime.run_in_session(BashAction(command=command))
    times = []
    for _ in range(n):
        started = time.perf_counter()
        await runtime.run_in_session(BashAction(command=command))
        times.append((time.perf_counter() - started) * 1000)
    await runtime.close()
    print(json.dumps(times))


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
