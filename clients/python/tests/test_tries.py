import httpx
import pytest

from durable_rollouts import InvalidRequest, Retries, RolloutClient, RolloutError

TASK = {"handler": "math", "id": "1", "data": {}}
ACCEPTED = httpx.Response(202, json={"rolloutId": "r", "done": False, "stage": "queued"})


def answering(*answers: httpx.Response | type[Exception], retries: Retries = Retries()):
    """A client of a service that answers so, one after the other; its requests and pauses."""
    left = list(answers)
    requests: list[httpx.Request] = []
    pauses: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        answer = left.pop(0)
        if isinstance(answer, httpx.Response):
            return answer
        raise answer("broken")

    http = httpx.Client(transport=httpx.MockTransport(handle))
    return RolloutClient("http://service", retries=retries, http=http, sleep=pauses.append), requests, pauses


def test_a_call_is_made_again_under_the_same_key():
    busy = httpx.Response(503, json={"status": 503, "detail": "busy"})
    client, requests, pauses = answering(httpx.ReadError, busy, httpx.Response(502, text="<html>"), ACCEPTED)
    assert client.submit(TASK) == "r"
    keys = {request.headers["idempotency-key"] for request in requests}
    assert len(requests) == 4 and len(keys) == 1
    for n, pause in enumerate(pauses):
        assert 0.75 * 2**n <= pause <= 1.25 * 2**n
    again, others, _ = answering(ACCEPTED)
    again.submit(TASK)
    assert others[0].headers["idempotency-key"] not in keys


def test_after_the_last_try_it_is_a_rollout_error():
    client, requests, pauses = answering(*[httpx.ConnectError] * 4, retries=Retries(most=3))
    with pytest.raises(RolloutError, match=r"POST /v1/rollouts: ConnectError broken \(tried 4 times\)") as raised:
        client.submit(TASK)
    assert (raised.value.tries, len(requests), len(pauses)) == (4, 4, 3)
    assert isinstance(raised.value.__cause__, httpx.ConnectError)
    broken = [httpx.Response(500, json={"status": 500, "detail": "an error of the gateway"})] * 2
    client, _, _ = answering(*broken, retries=Retries(most=1))
    with pytest.raises(RolloutError) as raised:
        client.get("r")
    assert raised.value.problem and raised.value.problem.status == 500


def test_it_waits_as_long_as_it_is_asked_to():
    busy = httpx.Response(429, json={"status": 429}, headers={"retry-after": "7"})
    dated = httpx.Response(503, headers={"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"})
    client, _, pauses = answering(busy, dated, ACCEPTED)
    client.submit(TASK)
    assert pauses[0] == 7 and 1.5 <= pauses[1] <= 2.5
    client, _, pauses = answering(busy, ACCEPTED, retries=Retries(longest=2))
    client.submit(TASK)
    assert pauses == [2]


def test_what_is_refused_is_not_asked_again():
    wrong = {"status": 422, "detail": "no", "errors": [{"field": "/limits/maxTurns", "detail": "too small"}]}
    client, requests, pauses = answering(httpx.Response(422, json=wrong))
    with pytest.raises(InvalidRequest, match="422 no") as raised:
        client.submit(TASK, {"limits": {"maxTurns": 0}})
    assert raised.value.fields == ["/limits/maxTurns"]
    assert (len(requests), pauses) == (1, [])


def test_a_setting_that_there_is_not_is_named_before_anything_is_sent():
    client, requests, _ = answering()
    with pytest.raises(ValueError, match="limits.maxturns"):
        client.submit(TASK, {"limits": {"maxturns": 3}})
    assert requests == []
