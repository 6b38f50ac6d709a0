"""How new weights come to the LLM servers: loaded in place, or by other servers that take the place of the old ones."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import httpx
from durable_rollouts import RolloutClient
from durable_rollouts.models import PoolReport

from .gguf_file import GgufFiles

#: Counters of sampled tokens, as vLLM and llama.cpp name them on their metrics pages.
COUNTERS = re.compile(r"^(?:vllm:generation_tokens_total\{[^}]*\}|llamacpp:tokens_predicted_total) (\S+)$", re.MULTILINE)


def sampled_tokens(url: str) -> int:
    """A server's own count of the tokens that it sampled. Raises ValueError if its metrics page has none."""
    text = httpx.get(f"{url}/metrics", timeout=60).raise_for_status().text
    found = COUNTERS.findall(text)
    if not found:
        raise ValueError(f"{url}/metrics has no counter of sampled tokens")
    return int(sum(float(value) for value in found))


class Servers(Protocol):
    def bring(self, version: int, weights: Path) -> None:
        """Returns when no request begins on older weights any more."""

    def sampled(self) -> int:
        """Tokens sampled so far, by the servers' own counters."""


class InPlace:
    """Servers that load the weights of a checkpoint folder: vLLM. Requests under way go on with the new ones."""

    def __init__(self, service: RolloutClient, url: str):
        self.service, self.url = service, url

    def bring(self, version: int, weights: Path) -> None:
        done(self.service.swap(version, str(weights.resolve()), "abort"), version)

    def sampled(self) -> int:
        return sampled_tokens(self.url)


class BlueGreen:
    """
    llama.cpp, which loads nothing while it runs: a server with the new weights starts beside the old one, which ends when
    its last request has. The first, at `url`, is somebody else's.
    """

    def __init__(self, service: RolloutClient, url: str, program: Sequence[str], like: Path):
        self.service, self.program = service, program
        self.files = GgufFiles(like)
        self.url = url
        self.process: subprocess.Popen[bytes] | None = None
        self.counted = 0

    def bring(self, version: int, weights: Path) -> None:
        # Its input stays open while this process lives: the end of it ends the server.
        process = subprocess.Popen(
            [*self.program, "--model", str(self.files.of(weights))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        told = json.loads(process.stdout.readline())
        if told["event"] != "ready":
            raise RuntimeError(f"llama.cpp did not start: {told['message']}")
        server = {"url": told["url"], "dialect": "llama.cpp"}
        done(self.service.replace_servers(version, [server]), version)
        self.counted += sampled_tokens(self.url)
        self._stop()
        self.url, self.process = told["url"], process

    def sampled(self) -> int:
        return self.counted + sampled_tokens(self.url)

    def _stop(self) -> None:
        if self.process:
            self.process.stdin.close()
            self.process.wait()


#: As the first server was started (llm-servers.ts).
LLAMA_CPP_FLAGS = ("--exact", "--ctx", "512", "--parallel", "8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--llm", required=True, help="address of the LLM server that the pool has")
    parser.add_argument(
        "--llama-cpp",
        nargs=3,
        metavar=("PYTHON", "SERVE", "GGUF"),
        help="that is llama.cpp: what starts others of it, and a file of the model; else it is vLLM",
    )


def servers_of(args: argparse.Namespace, service: RolloutClient) -> Servers:
    """By the arguments."""
    if not args.llama_cpp:
        return InPlace(service, args.llm)
    python, serve, like = args.llama_cpp
    return BlueGreen(service, args.llm, [python, serve, *LLAMA_CPP_FLAGS], Path(like))


def done(report: PoolReport, version: int) -> None:
    if report.failed or not report.drained:
        raise RuntimeError(f"the swap to version {version} failed: {report.failed}, drained: {report.drained}")
