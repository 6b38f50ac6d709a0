"""What a call may raise. Nothing that a rollout does is an error here: its record says how it ended."""

from __future__ import annotations

from .models.problem import Problem


class RolloutError(Exception):
    """The service could not be reached, or could not do it, at the last of `tries` tries."""

    def __init__(self, message: str, problem: Problem | None = None, tries: int = 1):
        super().__init__(message)
        #: What the service said last, if it said anything.
        self.problem = problem
        self.tries = tries


class RequestRefused(RolloutError):
    """The service will not do it, however often it is asked (4xx)."""

    problem: Problem

    def __init__(self, message: str, problem: Problem, tries: int = 1):
        super().__init__(message, problem, tries)

    @property
    def status(self) -> int:
        return self.problem.status

    @property
    def fields(self) -> list[str]:
        """Fields that are wrong: JSON pointers into the body, or names of parameters."""
        return [error.field for error in self.problem.errors]


class InvalidRequest(RequestRefused):
    """400, 413 and 422: what was asked for is wrong; `fields` says where."""


class NotAllowed(RequestRefused):
    """401 and 403: no token, or one without the scope."""


class NotFound(RequestRefused):
    """404: there is no such rollout, group, batch or pool."""


class Conflict(RequestRefused):
    """409: another request was made under this key, or the rollout is not where it would have to be."""


REFUSALS = {
    400: InvalidRequest,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
}
