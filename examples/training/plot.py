"""Draws what runs have written down: `plot.py FOLDER OUT.png`, FOLDER as the runs of `npm run train:example` are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

#: The trainer stops beyond it.
LARGEST_MEAN_LOG_RATIO = 1e-4
STYLES = {"grpo": "-", "dapo": "-.", "ahead": "--", "control": ":"}


def runs_in(folder: Path) -> dict[str, list[dict]]:
    """The rows of each run that has any, by its name."""
    files = sorted(folder.glob("*/steps.jsonl"))
    return {file.parent.name: [json.loads(line) for line in file.read_text().splitlines()] for file in files}


def draw(runs: dict[str, list[dict]], out: Path) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(15, 8), layout="constrained")
    (reward, answers, ratio), (stale, dropped, time) = axes
    for name, rows in runs.items():
        steps = [row["version"] for row in rows]
        style = STYLES.get(name.rsplit("-", 1)[0], "-")
        line = reward.plot(steps, [row.get("rewardDrawn", row["reward"]) for row in rows], style, label=name)[0]
        like = {"color": line.get_color(), "linestyle": style}
        answers.plot(steps, [row["answer"] for row in rows], **like)
        ratio.plot(steps, [row["ratio"] for row in rows], **like)
        ratio.plot(steps, [row["largestRatio"] for row in rows], ".", color=line.get_color(), alpha=0.4)
        stale.plot(steps, [row["staleness"] for row in rows], **like)
        dropped.plot(steps, [sum(row["dropped"].values()) for row in rows], **like)
        time.plot(steps, [row["seconds"]["sampling"] for row in rows], **like)
        time.plot(steps, [row["seconds"]["update"] for row in rows], "+", color=line.get_color())
    reward.axhline(0.9, color="grey", linewidth=0.8)
    ratio.axhline(LARGEST_MEAN_LOG_RATIO, color="grey", linewidth=0.8)
    ratio.set_yscale("log")
    titles = {
        reward: "mean reward (0.9 is the aim)",
        answers: "right answers",
        ratio: "|log ratio|: mean, and the largest as dots",
        stale: "staleness, versions",
        dropped: "groups dropped",
        time: "seconds: sampling (line), update (+)",
    }
    for axis, title in titles.items():
        axis.set_title(title)
        axis.set_xlabel("step")
    reward.legend()
    figure.savefig(out, dpi=80)


if __name__ == "__main__":
    draw(runs_in(Path(sys.argv[1])), Path(sys.argv[2]))
