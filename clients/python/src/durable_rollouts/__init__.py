"""The durable rollouts service, from Python: clients that wait or await, models, and adapters to trainers."""

from .aio import AsyncRolloutClient
from .client import RolloutClient
from .errors import Conflict, InvalidRequest, NotAllowed, NotFound, RequestRefused, RolloutError
from .tries import Retries

__all__ = [
    "AsyncRolloutClient",
    "Conflict",
    "InvalidRequest",
    "NotAllowed",
    "NotFound",
    "RequestRefused",
    "Retries",
    "RolloutClient",
    "RolloutError",
]
