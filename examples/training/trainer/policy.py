"""The policy in float32: log-probabilities of given tokens, updates, checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from .data import Group, Sequence


@dataclass(frozen=True)
class Ratio:
    """How far the log-probabilities of the service are from this model's own, over the sampled tokens of a version."""

    mean: float
    largest: float
    tokens: int

    @staticmethod
    def of_all(parts: list[Ratio]) -> Ratio:
        """Over the tokens of several versions."""
        tokens = sum(part.tokens for part in parts)
        mean = sum(part.mean * part.tokens for part in parts) / tokens
        return Ratio(mean, max(part.largest for part in parts), tokens)


class Policy:
    """The weights of one version, to look at."""

    def __init__(self, folder: Path):
        """Loads the weights of a checkpoint folder."""
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model.train()  # the model has no dropout: the same function as in eval

    def logprobs(self, sequences: list[Sequence]) -> torch.Tensor:
        """
        Log-probability of every output token, (sequences, longest output), 0 beyond an output's end. All begin with
        the same prompt, which is computed once.
        """
        prompt = sequences[0].prompt
        if any(one.prompt != prompt for one in sequences):
            raise ValueError("sequences of one group begin with the same prompt")
        ids = column(sequences, lambda one: one.output).long()
        seen = column(sequences, lambda one: [1] * len(one.output))
        start = self.model.model(input_ids=torch.tensor([prompt]), use_cache=True)
        cache = start.past_key_values
        cache.batch_repeat_interleave(len(sequences))
        rest = self.model.model(
            input_ids=ids[:, :-1],
            attention_mask=torch.cat([torch.ones(len(sequences), len(prompt)), seen[:, :-1]], 1).long(),
            past_key_values=cache,
        )
        last_of_prompt = start.last_hidden_state[:, -1:].expand(len(sequences), -1, -1)
        logits = self.model.lm_head(torch.cat([last_of_prompt, rest.last_hidden_state], 1))
        chosen = logits.gather(2, ids.unsqueeze(2)).squeeze(2) - logits.logsumexp(2)
        return chosen * seen

    @torch.no_grad()
    def ratio(self, groups: list[Group], version: int) -> Ratio:
        """|log ratio| between what the service recorded and an independent forward pass, over tokens of a version: at least one."""
        differences = []
        for group in groups:
            own = self.logprobs(group.sequences)
            counted = column(
                group.sequences, lambda one: [int(m and v == version) for m, v in zip(one.mask, one.versions)]
            )
            recorded = column(group.sequences, lambda one: one.logprobs)
            differences.append((own - recorded).abs()[counted.bool()])
        every = torch.cat(differences)
        return Ratio(every.mean().item(), every.max().item(), every.numel())


class Learner(Policy):
    """The policy that learns."""

    def __init__(self, folder: Path, learning_rate: float):
        """Loads a checkpoint folder, with its optimizer where it has one."""
        super().__init__(folder)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=learning_rate, weight_decay=0.0, foreach=False
        )
        state = folder / "optimizer.pt"
        if state.exists():
            self.optimizer.load_state_dict(torch.load(state, weights_only=True, mmap=True))

    def update(self, groups: list[Group], clip: tuple[float, float], truncation: float) -> dict[str, float]:
        """
        One step of GRPO's clipped objective with DAPO's mean over tokens and its higher upper bound. The
        distribution that sampled a token may be an older one: its ratio to this model before the step weighs the
        token, truncated at `truncation`.
        """
        learning = [group for group in groups if not group.uniform]
        if not learning:
            return {"loss": 0.0, "gradient": 0.0}
        tokens = sum(one.sampled for group in learning for one in group.sequences)
        total = 0.0
        self.optimizer.zero_grad()
        for group in learning:
            sequences = group.sequences
            now = self.logprobs(sequences)
            before = now.detach()
            mask = column(sequences, lambda one: one.mask)
            recorded = column(sequences, lambda one: one.logprobs)
            advantage = torch.tensor(group.advantages()).unsqueeze(1)
            weight = (before - recorded).exp().clamp(max=truncation)
            ratio = (now - before).exp()
            clipped = ratio.clamp(1 - clip[0], 1 + clip[1])
            objective = torch.minimum(ratio * advantage, clipped * advantage) * weight
            loss = -(objective * mask).sum() / tokens
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return {"loss": total, "gradient": norm.item()}

    def save(self, folder: Path, row: dict) -> None:
        """A checkpoint that is there whole or not at all: weights, optimizer and the row of the step that made it."""
        draft = folder.with_name(f"{folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        self.model.save_pretrained(draft)
        torch.save(self.optimizer.state_dict(), draft / "optimizer.pt")
        (draft / "step.json").write_text(json.dumps(row))
        for file in draft.iterdir():
            sync(file)
        os.replace(draft, folder)
        sync(folder.parent)


def column(sequences: list[Sequence], values) -> torch.Tensor:
    """One list per sequence, padded with zeros: (sequences, longest output)."""
    longest = max(len(one.output) for one in sequences)
    rows = [list(values(one)) + [0] * (longest - len(one.output)) for one in sequences]
    return torch.tensor(rows, dtype=torch.float32)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
