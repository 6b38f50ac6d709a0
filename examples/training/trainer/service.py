"""The rollout service, over HTTP."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx

from .data import Group, Sequence

TRIES = 8


#: A batch may take so long before its last group comes.
WHOLE_BATCH_SECONDS = 3600


class BatchShort(Exception):
    """A batch that ended with fewer groups than wanted."""


class Service:
    def __init__(self, url: str, pool: str = "default"):
        self.http = httpx.Client(base_url=url)
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

    def begin(self, batch: str, tasks: list[dict], samples: int, rules: dict, rollout: dict) -> None:
        """Begins a batch of groups. The same call again begins nothing new."""
        body = {
            "batchId": batch,
            "sources": [{"tasks": tasks}],
            "rules": rules,
            "group": {"samples": samples, "overlong": {"mode": "keep"}},
            "rollout": rollout,
        }
        self._call("POST", "/v1/batches", body)

    def collect(self, batch: str, wanted: int) -> list[Group]:
        """Waits for the groups of a batch. Raises BatchShort: a batch that ends with fewer is not what was asked for."""
        response = self._send("GET", f"/v1/batches/{batch}/groups?trajectories=true", wait=WHOLE_BATCH_SECONDS)
        lines = [json.loads(line) for line in response.text.splitlines()]
        if len(lines) < wanted:
            raise BatchShort(f"batch {batch} has {len(lines)} of {wanted} groups: {self.counts(batch)}")
        return [
            Group(
                line["groupId"],
                [Sequence.of(one) for sample in line["samples"] if sample["train"] for one in sample["trajectories"]],
            )
            for line in lines
        ]

    def counts(self, batch: str) -> dict:
        """What became of the groups of a batch."""
        return self._call("GET", f"/v1/batches/{batch}?wait=30")["counts"]

    def _call(self, method: str, path: str, body: dict | None = None) -> dict:
        return self._send(method, path, body).json()

    def _send(
        self, method: str, path: str, body: dict | None = None, wait: float = 90
    ) -> httpx.Response:
        """Tries again while the service can't be reached or is busy: every call here may be made twice."""
        for attempt in range(TRIES):
            try:
                response = self.http.request(method, path, json=body, timeout=wait)
                if response.status_code not in (429, 502, 503, 504):
                    if response.is_error:
                        raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
                    return response
                problem = response.text
            except httpx.TransportError as error:
                problem = repr(error)
            time.sleep(min(2**attempt, 30))
        raise RuntimeError(f"{method} {path}: {problem}")
