"""The pool of LLM servers that rollouts are sampled from."""

from __future__ import annotations

from typing import Literal

from .base import Answer, Asked


class NewServer(Asked):
    """A server that is to take part."""

    url: str
    dialect: Literal["llama.cpp", "vllm", "sglang", "tensorrt-llm", "prorl"] | None = None
    tokenizer: str | None = None
    context_tokens: int | None = None


class LlmServer(Answer):
    url: str
    dialect: str
    policy_version: int
    tokenizer: str | None = None
    context_tokens: int | None = None


class PoolMember(Answer):
    server: LlmServer
    labels: list[str]
    state: Literal["active", "draining", "out"]
    #: Why it is not active.
    why: str | None


class Pool(Answer):
    pool: str
    epoch: int
    #: Rollouts with a token of an older version are ended.
    floor: int
    members: list[PoolMember]

    @property
    def version(self) -> int | None:
        """The newest policy version that a server has which samples rollouts; None without one."""
        versions = [
            member.server.policy_version
            for member in self.members
            if "policy" in member.labels and member.state != "out"
        ]
        return max(versions, default=None)


class FailedServer(Answer):
    url: str
    why: str


class PoolReport(Answer):
    """How the pool stands after a change, and what went otherwise than asked."""

    state: Pool
    #: Servers that could not do it; they are not in use.
    failed: list[FailedServer]
    #: Run workers that did not answer; they begin nothing under the older state.
    silent: list[str]
    #: False if requests were still under way when the time for them was over.
    drained: bool
