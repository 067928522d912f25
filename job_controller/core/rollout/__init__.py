"""The rollout: which nodes may start now, one batch after the other."""
