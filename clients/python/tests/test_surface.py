import inspect

from durable_rollouts import AsyncRolloutClient, RolloutClient

SETUP = {"close"}


def calls(kind: type) -> dict[str, list[inspect.Parameter]]:
    return {
        name: list(inspect.signature(member).parameters.values())
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in SETUP
    }


def test_both_clients_have_the_same_calls():
    assert calls(AsyncRolloutClient) == calls(RolloutClient)
    assert len(calls(RolloutClient)) == 24
