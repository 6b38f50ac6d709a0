"""The LLM server's own count of the tokens that it sampled: what the service recorded must come to the same."""

from __future__ import annotations

import re

import httpx


def sampled_tokens(address: str) -> int:
    """vLLM's counter, from its metrics page. Raises ValueError if the page has none."""
    text = httpx.get(address, timeout=30).raise_for_status().text
    found = re.findall(r"^vllm:generation_tokens_total\{[^}]*\} (\S+)$", text, re.MULTILINE)
    if not found:
        raise ValueError(f"{address} has no vllm:generation_tokens_total")
    return int(sum(float(value) for value in found))
