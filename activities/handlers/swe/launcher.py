"""Starts pytest before anything of the repository can be imported. Arguments: "check", or the report's path, the
repository's root, its import folders (":" between them) and what to run."""

import os
import sys

own = os.path.dirname(os.path.abspath(__file__))
here = os.path.realpath(os.getcwd())
sys.path[:] = [one for one in sys.path if one and os.path.realpath(one) not in (own, here)]
try:
    import pytest
    import _pytest.junitxml
    import _pytest.unittest
except ImportError as error:
    sys.exit(f"this Python has no pytest: {error}")

if sys.argv[1] == "check":
    sys.exit(0)
report, root, folders, *tests = sys.argv[1:]
TEST_FOLDERS = {"test", "tests", "testing", "r2e_tests"}


def is_of_tests(file):
    """Whether a file is the task's own, or the runner's, which says it of unittest's expectedFailure."""
    if os.path.realpath(file) == os.path.realpath(_pytest.unittest.__file__) or os.path.realpath(file) in of_tests:
        return True
    *folders, name = os.path.relpath(os.path.realpath(file), os.path.realpath(root)).split(os.sep)
    return ".." not in folders and (name == "conftest.py" or bool(TEST_FOLDERS & set(folders)))


class Honest:
    """An expected failure counts as a pass where tests say so: code under test that says it has failed."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        result = (yield).get_result()
        if call.excinfo is None or not isinstance(call.excinfo.value, pytest.xfail.Exception):
            return
        frames = [str(entry.path) for entry in call.excinfo.traceback]
        said = [file for file in frames if not file.endswith(os.path.join("_pytest", "outcomes.py"))]
        if not said or not is_of_tests(said[-1]):
            result.outcome, result.longrepr = "failed", "the code under test expects to fail"
            result.__dict__.pop("wasxfail", None)


os.chdir(root)
of_tests = {os.path.realpath(os.path.join(root, test)) for test in tests}
sys.path[:0] = [os.path.join(root, folder) for folder in folders.split(":")]
# The report's own file is opened at the end; standard output is nobody's evidence.
options = [f"--junitxml={report}", f"--rootdir={root}", "-o", "junit_family=xunit1", "-p", "no:cacheprovider"]
options += ["--continue-on-collection-errors", "-q", "--color=no", "-o", "addopts="]
sys.exit(pytest.main([*options, *tests], plugins=[Honest()]))
