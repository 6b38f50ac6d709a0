"""What a run has done, on disk: checkpoints by version, and a line per step. A run that is killed goes on from it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path


class Journal:
    """
    `folder/checkpoints/N` holds the weights after N updates, with the row of the step that made them; a checkpoint
    appears whole, so a step and its weights are one. The two newest are kept: the LLM server may be at either.
    """

    def __init__(self, folder: Path, base: Path):
        self.folder = folder
        self.base = base
        self.checkpoints = folder / "checkpoints"
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.lines = folder / "steps.jsonl"
        self._catch_up()

    @property
    def version(self) -> int:
        """Updates done."""
        return max((int(one.name) for one in self.checkpoints.iterdir() if one.name.isdigit()), default=0)

    def weights(self, version: int) -> Path:
        return self.base if version == 0 else self.checkpoints / str(version)

    def rows(self) -> list[dict]:
        if not self.lines.exists():
            return []
        return [json.loads(line) for line in self.lines.read_text().splitlines()]

    def close_step(self) -> None:
        """Writes down the step of the newest checkpoint and drops weights that nobody needs any more."""
        self._catch_up()
        for one in self.checkpoints.iterdir():
            if not one.name.isdigit() or int(one.name) < self.version - 1:
                shutil.rmtree(one)

    def _catch_up(self) -> None:
        version = self.version
        rows = self.rows()
        if version == 0 or (rows and rows[-1]["version"] == version):
            return
        rows.append(json.loads((self.weights(version) / "step.json").read_text()))
        draft = self.lines.with_suffix(".draft")
        with draft.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.lines)
