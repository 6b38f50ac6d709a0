"""When a call is made again, and after how long; no I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass

import httpx
from pydantic import ValidationError

from .errors import REFUSALS, RequestRefused, RolloutError
from .models.problem import Problem


@dataclass(frozen=True)
class Retries:
    """How often a call is made again, after 2^n seconds, or what the service asks for if that is longer."""

    most: int = 5
    #: No pause is longer, in seconds.
    longest: float = 30

    def pause(self, n: int, asked: float = 0) -> float:
        """Seconds before retry n, from 0; spread by a quarter, so that many callers do not come back at once."""
        return min(max(2.0**n * random.uniform(0.75, 1.25), asked), self.longest)


class Tries:
    """The tries of one call."""

    def __init__(self, retries: Retries, what: str):
        self._retries = retries
        self._what = what
        self._failed = 0

    def progress(self) -> None:
        """A stream has brought something: what failed before no longer counts."""
        self._failed = 0

    def unreachable(self, error: httpx.TransportError) -> float:
        """Seconds before the next try. Raises RolloutError if there is none."""
        try:
            return self._again(f"{type(error).__name__} {error}".strip(), None, 0)
        except RolloutError as last:
            raise last from error

    def answered(self, response: httpx.Response) -> float:
        """As `unreachable`, for an answer that is not a good one and has been read. Raises RequestRefused, RolloutError."""
        problem = problem_of(response)
        said = f"{problem.status} {problem.detail or problem.title}"
        if response.status_code == 429 or response.status_code >= 500:
            return self._again(said, problem, seconds_asked(response))
        kind = REFUSALS.get(response.status_code, RequestRefused)
        raise kind(f"{self._what}: {said}", problem, self._failed + 1)

    def cut(self) -> float:
        """As `unreachable`, for a stream that ended before its last event."""
        return self._again("the stream ended too early", None, 0)

    def _again(self, said: str, problem: Problem | None, asked: float) -> float:
        failed = self._failed
        self._failed += 1
        if failed >= self._retries.most:
            raise RolloutError(f"{self._what}: {said} (tried {self._failed} times)", problem, self._failed)
        return self._retries.pause(failed, asked)


def problem_of(response: httpx.Response) -> Problem:
    """What an answer says is wrong; one that is no problem details (a proxy's, say) becomes some."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return Problem(status=response.status_code, title=response.reason_phrase, detail=response.text[:500])


def seconds_asked(response: httpx.Response) -> float:
    """Of the header Retry-After; 0 where it is absent, or a date."""
    try:
        return float(response.headers.get("retry-after", "0"))
    except ValueError:
        return 0
