"""Settings for a person's own data and minutes: a complete config, with the reason for each choice."""

from normatch.autoconfig.draft import Plan
from normatch.autoconfig.plans import choose, plan
from normatch.autoconfig.rules import muon_rate, side_to_embed

__all__ = ["Plan", "choose", "muon_rate", "plan", "side_to_embed"]
