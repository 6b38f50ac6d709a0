from pathlib import Path

import pytest

from durable_rollouts import RolloutClient
from durable_rollouts.models import Trajectory

RECORDED = Path(__file__).parents[3] / "test" / "fixtures" / "trajectories" / "two-turns.jsonl"


def pytest_addoption(parser):
    parser.addoption("--service", help="address of a service whose rollouts do what their tasks say")
    parser.addoption("--restarting", help="the same, killed after it accepts its first rollout, and started again")
    parser.addoption("--token", help="of that service")


@pytest.fixture
def line() -> Trajectory:
    """A real one: a tool call, its result, an answer."""
    return Trajectory.model_validate_json(RECORDED.read_text())


@pytest.fixture
def address(pytestconfig) -> tuple[str, str]:
    url = pytestconfig.getoption("--service")
    if url is None:
        pytest.skip("needs --service: npm test -- python-client")
    return url, pytestconfig.getoption("--token")


@pytest.fixture
def client(address):
    with RolloutClient(*address) as client:
        yield client
