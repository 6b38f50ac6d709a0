"""usage: python -m trainer --service URL --settings FILE --seed N --base FOLDER --folder FOLDER [--ahead] …"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from .counter import sampled_tokens
from .journal import Journal
from .loop import Loop, Run, say
from .service import Service


def main() -> None:
    parser = argparse.ArgumentParser(prog="trainer", description="Trains a small policy through the rollout service.")
    parser.add_argument("--service", required=True, help="address of the rollout service")
    parser.add_argument("--settings", required=True, type=Path, help="task, algorithm and sizes, as JSON")
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--base", required=True, type=Path, help="folder of the model to begin with")
    parser.add_argument("--folder", required=True, type=Path, help="of checkpoints and results; goes on with what is there")
    parser.add_argument("--ahead", action="store_true", help="sample batch k+1 while step k is updated")
    parser.add_argument("--still", action="store_true", help="learning rate 0, as a control")
    parser.add_argument("--leave-out-swap", action="store_true", help="give the servers the old weights as the new version")
    parser.add_argument("--counter", help="metrics address of the only LLM server, to compare its count of tokens")
    args = parser.parse_args()

    torch.set_num_threads(2)
    settings = json.loads(args.settings.read_text())
    if args.still:
        settings["learningRate"] = 0.0
    kind = "control" if args.still else "ahead" if args.ahead else settings["algorithm"]
    name = f"{settings['name']}-{kind}-{args.seed}"
    journal = Journal(args.folder, args.base)
    counted = sampled_tokens(args.counter) if args.counter else 0
    loop = Loop(
        Run(name, args.seed, settings, ahead=args.ahead, leave_out_swap=args.leave_out_swap),
        Service(args.service),
        journal,
    )
    before = loop.held_out() if loop.version == 0 else None
    loop.train()
    after = loop.held_out()
    result = {"name": name, "settings": settings, "heldOut": {"before": before, "after": after}}
    if args.counter:
        result["tokens"] = {"server": sampled_tokens(args.counter) - counted, "recorded": loop.tokens}
    (args.folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    say(f"{name}: held out {before} -> {after}, {result.get('tokens')}")


main()
