"""The command line of a config is the inverse of parsing one."""

import shlex

import pytest

from normatch.arguments import command_of, parse_run
from normatch.augment import AugmentConfig
from normatch.config import Config
from normatch.methods.fixmatch import FixMatchSettings
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.recipes import own, recipes

CONFIGS = {name: recipe.build() for name, recipe in recipes.items()} | {
    "another seed": recipes.get("digits-40").build().replace(seed=3, steps=7, labels=None),
    "another method": recipes.get("digits-40").build().replace(method="fixmatch"),
    "switches": recipes.get("cifar10-40")
    .build()
    .replace(
        augment=AugmentConfig(flip=False, pad=2),
        optim=OptimConfig(lr=0.01),
        settings=NorMatchSettings(stop_gradient=False, alignment=False, num_weight=0.0),
        deterministic=True,
        include_labelled=False,
    ),
    "own data": own("my pictures/of cats.npz").replace(image_size=32),
    "own data, other method": own("pets").replace(method="fixmatch", settings=FixMatchSettings(threshold=0.8)),
    "made in Python": Config(name="mine", data="pets", labels=None, test_share=0.1),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_the_command_of_a_config_gives_that_config(case: str) -> None:
    program, verb, *argv = shlex.split(command_of(CONFIGS[case]))
    assert (program, verb) == ("normatch", "train")
    assert parse_run("train", argv, {})[0] == CONFIGS[case]


def test_commands_are_short() -> None:
    assert command_of(CONFIGS["digits-40"]) == "normatch train digits-40"
    assert command_of(CONFIGS["another method"]) == "normatch train digits-40 --method fixmatch"
    assert command_of(own("pets")) == "normatch train --data pets"
