"""TRL's GRPOTrainer on rollouts of the service, by its `rollout_func`. Arguments as the example trainer has them."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from datasets import Dataset
from durable_rollouts import RolloutClient
from durable_rollouts.adapters import of_group, trl
from trainer.loop import Run, tasks_of
from trainer.servers import Servers, add_arguments, servers_of
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer


class Weights:
    """Stands where TRL has a vLLM of its own: before TRL samples, the service gets the weights of the step."""

    def __init__(self, service: RolloutClient, servers: Servers, trainer: GRPOTrainer, folder: Path):
        self.service, self.servers, self.trainer, self.folder = service, servers, trainer, folder

    def sync_weights(self) -> None:
        version = self.trainer.state.global_step
        if self.service.pool().version == version:
            return
        weights = self.folder / str(version)
        self.trainer.model.save_pretrained(weights)
        self.servers.bring(version, weights)
        shutil.rmtree(self.folder / str(version - 2), ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in {"service": str, "settings": Path, "seed": int, "kind": str, "base": Path, "folder": Path}.items():
        parser.add_argument(f"--{name}", required=True, type=kind)
    add_arguments(parser)
    args, _ = parser.parse_known_args()
    settings = json.loads(args.settings.read_text())
    name = f"{settings['name']}-{args.kind}-{args.seed}"
    service = RolloutClient(args.service)
    run, samples = Run(name, args.seed, settings), settings["samples"]
    steps = [tasks_of(run, f"step-{step}", settings["tasksPerStep"]) for step in range(settings["steps"])]
    # What is asked of the model is the handler's; a prompt of TRL's only names the task.
    tasks = {f"{step}-{task['id']}": task for step, drawn in enumerate(steps) for task in drawn}

    def rollout(prompts: list[str], trainer: GRPOTrainer) -> trl.RolloutOutput:
        """One completion for each prompt; each comes `samples` times in a row."""
        batch = service.begin_batch(
            [{"tasks": [tasks[prompt] for prompt in prompts[::samples]]}],
            {"groups": len(prompts) // samples, "oversampling": 1, "dropEqual": False},
            group={"samples": samples, "overlong": {"mode": "keep"}},
            rollout=settings["rollout"],
            key=f"{name}-{trainer.state.global_step}",
        )
        return trl.rollout_output([
            one for group in service.batch_groups(batch, trajectories=True) for one in of_group(group)
        ])

    low, high = settings["clip"]
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(args.base, dtype="float32"),
        processing_class=AutoTokenizer.from_pretrained(args.base),
        reward_funcs=trl.recorded_reward,
        train_dataset=Dataset.from_dict({"prompt": list(tasks)}),
        rollout_func=rollout,
        args=GRPOConfig(
            output_dir=str(args.folder / "trl"),
            max_steps=settings["steps"],
            # A group at a time: TRL keeps logits over the whole vocabulary, a gigabyte or more for each.
            per_device_train_batch_size=samples,
            gradient_accumulation_steps=settings["tasksPerStep"],
            num_generations=samples,
            learning_rate=settings["learningRate"],
            lr_scheduler_type="constant",
            epsilon=low,
            epsilon_high=high,
            beta=0.0,
            loss_type="dapo",
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            seed=args.seed,
        ),
    )
    # Only then the loss weighs tokens by the log-probabilities with which they were sampled.
    trainer.use_vllm, trainer._last_loaded_step = True, -1
    trainer.vllm_generation = Weights(service, servers_of(args, service), trainer, args.folder / "weights")
    trainer.train()
    (args.folder / "log.json").write_text(json.dumps(trainer.state.log_history, indent=2) + "\n")


main()
