"""Runs a repository's tests and tells what pytest says of them. Arguments: "check", or the repository's root, its import
folders (":" between them) and what to run. With a mark on standard input: prints the mark, pytest's report and the mark.

Two processes: one runs pytest, and with it the code under test, and can only write to a pipe; the other reads the pipe, and
nothing of it can be reached. So nothing that ends the first, outlives it, or writes to files or standard output is a report."""

import ctypes
import os
import select
import subprocess
import sys

PR_SET_DUMPABLE = 4
MOST_BYTES = 15 * 1024**2
TEST_FOLDERS = {"test", "tests", "testing", "r2e_tests"}
own = os.path.dirname(os.path.abspath(__file__))


def supervise(arguments):
    # Its memory and its descriptors are then closed to processes of the same user.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    mark = sys.stdin.readline().strip()
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), str(writing), *arguments],
        pass_fds=[writing],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    report = b""
    while len(report) < MOST_BYTES:
        # What outlives it may hold the pipe open.
        ended = child.poll() is not None
        ready, _, _ = select.select([reading], [], [], 0 if ended else 0.05)
        chunk = os.read(reading, 65536) if ready else b""
        if not chunk and (ended or (ready and child.wait() is not None)):
            break
        report += chunk
    sys.stdout.buffer.write(mark.encode() + report + mark.encode())
    sys.stdout.flush()


def is_of_tests(file, root, of_tests):
    """Whether a file is the task's own, or the runner's, which says it of unittest's expectedFailure."""
    if os.path.realpath(file) == os.path.realpath(_pytest.unittest.__file__) or os.path.realpath(file) in of_tests:
        return True
    *folders, name = os.path.relpath(os.path.realpath(file), os.path.realpath(root)).split(os.sep)
    return ".." not in folders and (name == "conftest.py" or bool(TEST_FOLDERS & set(folders)))


def run(pipe, root, folders, *tests):
    of_tests = {os.path.realpath(os.path.join(root, test)) for test in tests}

    class Honest:
        """An expected failure counts as a pass where tests say so: code under test that says it has failed."""

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item, call):
            result = (yield).get_result()
            if call.excinfo is None or not isinstance(call.excinfo.value, pytest.xfail.Exception):
                return
            frames = [str(entry.path) for entry in call.excinfo.traceback]
            said = [file for file in frames if not file.endswith(os.path.join("_pytest", "outcomes.py"))]
            if not said or not is_of_tests(said[-1], root, of_tests):
                result.outcome, result.longrepr = "failed", "the code under test expects to fail"
                result.__dict__.pop("wasxfail", None)

    os.chdir(root)
    sys.path[:0] = [os.path.join(root, folder) for folder in folders.split(":")]
    options = [f"--junitxml=/proc/self/fd/{pipe}", f"--rootdir={root}", "-o", "junit_family=xunit1"]
    options += ["-p", "no:cacheprovider", "--continue-on-collection-errors", "-q", "--color=no", "-o", "addopts="]
    sys.exit(pytest.main([*options, *tests], plugins=[Honest()]))


if sys.argv[1] != "check" and not sys.argv[1].isdecimal():
    supervise(sys.argv[1:])
    sys.exit()

# pytest is loaded before anything of the repository can be imported.
here = os.path.realpath(os.getcwd())
sys.path[:] = [one for one in sys.path if one and os.path.realpath(one) not in (own, here)]
try:
    import pytest
    import _pytest.junitxml
    import _pytest.unittest
except ImportError as error:
    sys.exit(f"this Python has no pytest: {error}")

if sys.argv[1] != "check":
    run(*sys.argv[1:])
