"""The command line that trains a config again."""

import shlex

from normatch.config import Config, flat, to_json
from normatch.recipes import own, recipes

__all__ = ["command_of", "flags_of_own"]


def command_of(config: Config) -> str:
    """The command line that trains ``config`` again, starting from the recipe that needs the fewest flags.

    It names a recipe even for the user's own data: without one, fields that are not given would be chosen again.
    """
    starts = ([name, *_flags_from(recipe.build(), config)] for name, recipe in recipes.items())
    return shlex.join(["normatch", "train", *min(starts, key=len)])


def flags_of_own(config: Config) -> list[str]:
    """The words of ``normatch train`` that train ``config``, on the user's own data; what equals the draft for such
    data is chosen again, except for what is held out."""
    none_held_out = [] if config.test_share else ["--test-share", "0"]
    return ["--data", config.data, *none_held_out, *_flags_from(own(config.data), config)]


def _flags_from(base: Config, config: Config) -> list[str]:
    """The flags that turn ``base`` into ``config``."""
    flags = []
    if base.method != config.method:
        flags += ["--method", config.method]
        base = base.replace(method=config.method)
    before, after = flat(to_json(base)), flat(to_json(config))
    for name, value in after.items():
        if before[name] == value:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            *path, last = flag.split(".")
            flags.append("--" + ".".join([*path, last if value else f"no-{last}"]))
        else:
            flags += [f"--{flag}", *_words(value)]
    return flags


def _words(value: object) -> list[str]:
    """A value as words on the command line; tuples of tuples are written one after the other."""
    return [word for item in value for word in _words(item)] if isinstance(value, list) else [str(value)]
