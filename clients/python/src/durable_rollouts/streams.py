"""Answers that come line by line, and go on where they were after a break; no I/O."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from . import calls
from .calls import Call
from .models import BatchEvent, Group

S = TypeVar("S")


class Lines:
    """Cuts bytes at newlines alone: JSON may hold other characters that Python takes for the end of a line."""

    def __init__(self) -> None:
        self._open: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        first, *rest = piece.split(b"\n")
        self._open.append(first)
        if not rest:
            return []
        whole = [b"".join(self._open), *rest[:-1]]
        self._open = [rest[-1]]
        return whole


class Stream(ABC, Generic[S]):
    """What is read, and how far it has been."""

    @abstractmethod
    def call(self) -> Call[None]:
        """Asks for what has not been read."""

    @abstractmethod
    def read(self, line: bytes) -> S | None:
        """What a line completes, if it completes something."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether an answer that has ended well was the last."""


class Groups(Stream[Group]):
    """Groups of a batch, as JSON lines."""

    over = True

    def __init__(self, batch_id: str, trajectories: bool, after: int):
        self._batch_id = batch_id
        self._trajectories = trajectories
        self._seen = after

    def call(self) -> Call[None]:
        return calls.batch_groups(self._batch_id, self._trajectories, self._seen)

    def read(self, line: bytes) -> Group:
        group = Group.model_validate_json(line)
        self._seen += 1
        return group


class Events(Stream[BatchEvent]):
    """What happens in a batch, as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

    def __init__(self, batch_id: str, after: int):
        self._batch_id = batch_id
        self._seen = after
        self._fields: dict[str, str] = {}
        self.ended = False

    @property
    def over(self) -> bool:
        return self.ended

    def call(self) -> Call[None]:
        # Of an event that a break has cut, nothing counts.
        self._fields = {}
        return calls.batch_events(self._batch_id, self._seen)

    def read(self, line: bytes) -> BatchEvent | None:
        if line:
            name, _, value = line.decode().partition(": ")
            self._fields[name] = value
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:  # a comment, by which proxies see that the stream lives
            return None
        given = {**json.loads(fields["data"]), "number": int(fields["id"]), "kind": fields["event"]}
        event = BatchEvent.model_validate(given)
        self._seen = event.number
        self.ended = event.kind == "ended"
        return event
