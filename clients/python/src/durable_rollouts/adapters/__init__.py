"""
From the service's trajectories to what trainers take, as pure functions on lists: `of_group` or `of_lines`, then the module
of the trainer. Nothing here imports a trainer, or torch.
"""

from .sequence import TrainingSequence, Ungraded, of_group, of_lines

__all__ = ["TrainingSequence", "Ungraded", "of_group", "of_lines"]
