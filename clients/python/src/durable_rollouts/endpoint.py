"""Where the service is, and how a call becomes a request of httpx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from .calls import PATIENCE, Call


@dataclass(frozen=True)
class Endpoint:
    url: str
    token: str | None

    def request(self, call: Call[Any]) -> dict[str, Any]:
        """Arguments of `request` and `stream`."""
        headers = dict(call.headers)
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return {
            "method": call.method,
            "url": f"{self.url.rstrip('/')}{call.path}",
            "json": call.body,
            "params": call.params,
            "headers": headers,
            "timeout": httpx.Timeout(PATIENCE, read=call.silence),
        }
