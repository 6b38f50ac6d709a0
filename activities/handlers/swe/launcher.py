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
os.chdir(root)
sys.path[:0] = [os.path.join(root, folder) for folder in folders.split(":")]
# The report's own file is opened at the end; standard output is nobody's evidence.
options = [f"--junitxml={report}", f"--rootdir={root}", "-o", "junit_family=xunit1", "-p", "no:cacheprovider"]
options += ["--continue-on-collection-errors", "-q", "--color=no", "-o", "addopts="]
sys.exit(pytest.main([*options, *tests]))
