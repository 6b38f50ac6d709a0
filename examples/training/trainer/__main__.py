"""usage: python -m trainer --service URL --settings FILE --seed N --base FOLDER --folder FOLDER --kind KIND --llm URL …"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from durable_rollouts import Retries, RolloutClient

from .journal import Journal
from .loop import Loop, Run, say
from .servers import add_arguments, servers_of


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
    parser.add_argument("--kind", required=True, help="of the run, in its name")
    parser.add_argument("--count", action="store_true", help="compare the servers' count of sampled tokens with the record")
    add_arguments(parser)
    args = parser.parse_args()

    torch.set_num_threads(2)
    settings = json.loads(args.settings.read_text())
    if args.still:
        settings["learningRate"] = 0.0
    name = f"{settings['name']}-{args.kind}-{args.seed}"
    service = RolloutClient(args.service, retries=Retries(most=8))
    servers = servers_of(args, service)
    counted = servers.sampled() if args.count else 0
    run = Run(name, args.seed, settings, ahead=args.ahead, leave_out_swap=args.leave_out_swap)
    loop = Loop(run, service, servers, Journal(args.folder, args.base))
    before = loop.held_out(0)
    loop.train()
    after = loop.held_out(loop.version)
    result = {"name": name, "settings": settings, "heldOut": {"before": before, "after": after}}
    if args.count:
        result["tokens"] = {"server": servers.sampled() - counted, "recorded": loop.tokens}
    (args.folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    say(f"{name}: held out {before} -> {after}, {result.get('tokens')}")


main()
