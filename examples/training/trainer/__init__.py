"""A trainer that knows the rollout service by its HTTP interface alone."""
