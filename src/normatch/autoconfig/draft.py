"""A plan: a complete config, what it was chosen for, and what to tell the user about it."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from normatch.config import Config
from normatch.data import Corpus
from normatch.text import aligned

__all__ = ["Plan"]


@dataclass
class Plan:
    """A complete config, its data if already read, and what to tell the user about both."""

    config: Config
    fixed: Collection[str] = ()
    """Fields that the user has fixed: they are never changed. Names are dotted, as in flags: ``settings.alignment``."""
    corpus: Corpus | None = None
    """All samples: a test set is held out when a run begins, by the seed and the share of that run."""
    found: str = ""
    chosen: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Value and reason of each choice, by field."""
    tunes: bool = False
    """Whether all of a pretrained network is trained, from a run in which it was frozen."""
    before: "Plan | None" = None
    """The plan of that run, if it is still to be trained: ``train(plan.config, first=plan.before.config)``."""

    def set(self, name: str, value: Any, why: str, shown: str = "") -> None:
        """Choose a field, unless the user has fixed it."""
        if name in self.fixed:
            return
        outer, _, inner = name.rpartition(".")
        changed = dataclasses.replace(getattr(self.config, outer), **{inner: value}) if outer else value
        self.config = self.config.replace(**{outer or inner: changed})
        self.chosen.pop(name, None)
        self.chosen[name] = (shown or f"{value}", why)

    def describe(self) -> str:
        """Text for the user: a line on the data, remarks on them, and a line per choice; empty if there is neither."""
        if self.before is not None:
            first = self.before.describe().rpartition("  To change")[0]
            return f"{first}  then all of the network is trained, --finetune:\n{self._choices()}"
        return (f"{self.found}\n" if self.found else "") + self._choices()

    def _choices(self) -> str:
        lines = []
        if self.chosen:
            rows = [(f"--{name.replace('_', '-')}", *choice) for name, choice in self.chosen.items()]
            lines += [f"  {line}" for line in aligned(rows)]
            lines.append("  To change one, add its flag. All are stored in config.json.")
        return "".join(f"{line}\n" for line in lines)
