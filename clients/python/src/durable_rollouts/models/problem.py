"""Problem details (RFC 9457): how the service says what is wrong."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FieldProblem(BaseModel):
    """A field that is wrong: a JSON pointer into the body, or the name of a parameter."""

    field: str
    detail: str


class Problem(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str = ""
    status: int
    detail: str = ""
    errors: list[FieldProblem] = []
