"""What all programs of a PythonPool have in common: one line of JSON in, one out, under limits."""

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def serve(answer):
    """Answers each request with `answer(request)`; an exception is told and ends nothing."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer

    def reply(message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    if sys.platform == "linux":
        # One that hangs in a computation would not see its input end.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        memory = int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    reply({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        # Processor time, so that a busy machine fails nobody. Nothing handles the signal: it ends the process, also
        # in the middle of C code.
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        try:
            said = {"answer": answer(asked["request"])}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"[:500]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply(said)
