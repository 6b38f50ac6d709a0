"""How the service writes JSON: camelCase names, except in trajectories."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Answer(BaseModel):
    """What the service says. Fields that a newer service has as well are kept, under their own names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True)


class Asked(BaseModel):
    """What a caller asks for. A field that is not known is refused here: the service would pass over it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    def wire(self) -> dict[str, Any]:
        """As it is sent: what was not set is as the service is configured."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
