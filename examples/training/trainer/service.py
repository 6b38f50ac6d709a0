"""The rollout service, over HTTP."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from .data import Group, Sequence

TRIES = 8


class RolloutFailed(Exception):
    """A rollout that ended without a reward."""


class Service:
    def __init__(self, url: str, pool: str = "default"):
        self.http = httpx.Client(base_url=url, timeout=90)
        self.pool = pool

    def version(self) -> int:
        """Policy version of the servers."""
        members = self._call("GET", f"/v1/pools/{self.pool}")["members"]
        return max(member["server"]["policyVersion"] for member in members)

    def swap(self, version: int, weights: Path, mode: str) -> None:
        """Returns when no request begins on older weights any more."""
        body = {"mode": mode, "version": version, "folder": str(weights)}
        report = self._call("POST", f"/v1/policies/{self.pool}/version", body)
        if report["failed"]:
            raise RuntimeError(f"the swap to version {version} failed: {report['failed']}")

    def begin(self, batch: str, tasks: list[dict], samples: int, settings: dict) -> None:
        """Begins all rollouts of a batch. The same call again begins nothing new."""
        for task in tasks:
            group = f"{batch}-{task['id']}"
            for sample in range(samples):
                request = {
                    "rolloutId": f"{group}-{sample}",
                    "batchId": batch,
                    "groupId": group,
                    "sample": sample,
                    "task": task,
                    "sampling": {**settings["sampling"]},
                    "limits": settings["limits"],
                }
                self._call("POST", "/v1/rollouts", request)

    def collect(self, batch: str, tasks: list[dict], samples: int) -> list[Group]:
        """Waits for a batch. Raises RolloutFailed: a rollout that failed has no reward."""
        return [
            Group(group, [self._sequence(f"{group}-{sample}") for sample in range(samples)])
            for group in (f"{batch}-{task['id']}" for task in tasks)
        ]

    def _sequence(self, rollout: str) -> Sequence:
        while True:
            answer = self._call("GET", f"/v1/rollouts/{rollout}?wait=30")
            if answer["done"]:
                break
        record = answer["record"]
        if record["reward"] is None:
            raise RolloutFailed(f"{rollout}: {record['outcome']} {record['failure'] or record['cancel']}")
        return Sequence.of(self._call("GET", f"/v1/rollouts/{rollout}/trajectory"))

    def _call(self, method: str, path: str, body: dict | None = None) -> dict:
        return self._send(method, path, body).json()

    def _send(self, method: str, path: str, body: dict | None = None) -> httpx.Response:
        """Tries again while the service can't be reached or is busy: every call here may be made twice."""
        for attempt in range(TRIES):
            try:
                response = self.http.request(method, path, json=body)
                if response.status_code not in (429, 502, 503, 504):
                    if response.is_error:
                        raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
                    return response
                problem = response.text
            except httpx.TransportError as error:
                problem = repr(error)
            time.sleep(min(2**attempt, 30))
        raise RuntimeError(f"{method} {path}: {problem}")
