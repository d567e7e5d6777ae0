"""Chooses, from the data and the machine, what a run on the user's own data leaves open."""

from normatch.autoconfig.planning import Plan, choose, plan

__all__ = ["Plan", "choose", "plan"]
