"""Steps, and what follows from them, that fit into a time: by the speed of a few steps measured on this machine."""

import dataclasses
import math

import numpy as np

from normatch.augment import AugmentConfig
from normatch.autoconfig.draft import Plan
from normatch.autoconfig.rules import EPOCHS, LEAST_BATCH, choose_epoch, choose_rates, choose_records
from normatch.config import Config
from normatch.data import Corpus, Dataset
from normatch.device import device_of
from normatch.errors import UserError
from normatch.nets import PRETRAINED
from normatch.nets.model import Model
from normatch.text import counted
from normatch.training.bench import SPARE, Pace, embedding_pace, pace
from normatch.training.job import prepare, untrained_start

__all__ = ["fit_into_minutes"]

EVALUATING = 0.2
"""Largest share of a time budget to spend on evaluations."""

LEAST_STEPS = 100
"""Steps below which a run is a trial that learns little (38 % after 8 steps, once): its warnings begin there, too."""


def fit_into_minutes(draft: Plan, minutes: float, automatic: bool, spent: float = 0.0) -> float:
    """Choose the steps, and what follows from them, that fit into a time; ``automatic`` is for the user's own data.
    ``spent`` is what an earlier stage takes of the minutes that the user gave. Returns the minutes that it will take.

    A run of less than LEAST_STEPS steps gets smaller batches if they are open, and is refused if that is not enough.
    """
    config, fixed = draft.config, draft.fixed
    embedding = _embedding_seconds(draft) / 60
    left = minutes - embedding
    # The steps between two evaluations if the user has given them.
    every = config.evaluate_every if "evaluate_every" in fixed else None
    if "epoch" in fixed and config.evaluate_every is None:
        every = config.epoch

    def measured() -> tuple[Pace, int, int]:
        """The speed of the draft on this machine, and how many evaluations and steps that leaves time for."""
        speed = pace(prepare(*_stand_in(draft), start=_stand_in_start(draft)))
        due = config.steps // (config.evaluate_every or config.epoch)
        evaluations = max(1, min(due, int(EVALUATING * speed.seconds_in(left) / speed.evaluation)))
        if every is None:
            return speed, evaluations, speed.steps_in(left, evaluations=evaluations)
        # The one evaluation is that after the last step.
        return speed, evaluations, speed.steps_in(left, evaluations=1, every=every)

    speed, evaluations, steps = measured()
    if 0 < steps < LEAST_STEPS and automatic:
        _choose_smaller_batch(draft, steps)
        if draft.config != config:
            speed, evaluations, steps = measured()
    if steps < LEAST_STEPS:
        needed = spent + embedding + (speed.start + LEAST_STEPS * speed.step + speed.evaluation) / (60 * (1 - SPARE))
        raise UserError(
            f"minutes is {minutes + spent:g}: at {1 / speed.step:.2g} steps/s, measured on this machine, too few for "
            f"{LEAST_STEPS} steps, the least that teach a network something: give --minutes {math.ceil(needed)}, a "
            "smaller --image-size, --backbone or --batch, or the number of --steps"
        )
    if automatic and config.freeze and steps >= config.steps:
        steps = config.steps  # more would teach nothing new
        return embedding + (speed.start + steps * speed.step + evaluations * speed.evaluation) / 60
    evaluating = f" and {speed.evaluation:.2g} s for an evaluation every {every:,}" if every else ""
    at = f"{minutes:g} minute{'' if minutes == 1 else 's'} at {1 / speed.step:.2f} steps/s"
    draft.set("steps", steps, f"{at}{evaluating}, measured on this machine")
    epoch = config.epoch if "epoch" in fixed else math.ceil(steps / max(1, config.steps // config.epoch))
    # Not by longer epochs, which are also the unit of a method's ramps.
    if every is None and (config.evaluate_every or evaluations < math.ceil(steps / epoch)):
        _choose_interval(draft, "evaluate_every", "evaluation", evaluations)
    if config.checkpoint_every or math.ceil(steps / epoch) > EPOCHS:
        _choose_interval(draft, "checkpoint_every", "checkpoint", EPOCHS)
    choose_epoch(draft, epoch)
    choose_records(draft)
    if automatic:
        choose_rates(draft)
    return minutes


def _choose_smaller_batch(draft: Plan, steps: int) -> None:
    """Choose batch and ratio with as many images as leave time for LEAST_STEPS steps where there was for ``steps``."""
    config = draft.config
    images = config.batch * (1 + config.ratio) * steps / LEAST_STEPS
    why = f"{counted(steps, 'step')} with {config.batch * (1 + config.ratio)} images each would not learn"
    batch = min(config.batch, max(LEAST_BATCH, 2 ** int(math.log2(max(1, images / (1 + config.ratio))))))
    if batch < config.batch:
        draft.set("batch", batch, why)
    ratio = max(1, min(config.ratio, int(images / draft.config.batch) - 1))
    if ratio < config.ratio:
        draft.set("ratio", ratio, why)


def _choose_interval(draft: Plan, name: str, what: str, times: int) -> None:
    """Choose how often something is done, so that it is done at most ``times`` in the run."""
    every = math.ceil(draft.config.steps / times)
    draft.set(name, every, counted(math.ceil(draft.config.steps / every), what))


def _embedding_seconds(draft: Plan) -> float:
    """The time that a frozen backbone takes for all views, measured on this machine; 0 if it is not frozen."""
    config, corpus = draft.config, draft.corpus
    if not config.freeze or corpus is None:
        return 0.0
    views = sum(map(len, corpus.parts.values())) + 2 * config.copies * len(corpus.train)
    backbone = PRETRAINED if config.backbone == "auto" else config.backbone
    return views / embedding_pace(backbone, corpus.train.shape, device_of(config.device))


def _stand_in(draft: Plan) -> tuple[Config, Corpus | None]:
    """What to time: the draft or, if its backbone is frozen, noise in place of its features."""
    config, corpus = draft.config, draft.corpus
    if not config.freeze or corpus is None:
        return config, corpus

    def noise(part: Dataset) -> Dataset:
        width = 1280  # of the usual backbone
        return dataclasses.replace(part, inputs=np.random.default_rng(0).random((len(part), width), np.float32))

    test = None if corpus.test is None else noise(corpus.test)
    views = config.augment
    plain = {"freeze": False, "copies": 0, "weights": None, "image_size": None, "backbone": "mlp"}
    augment = AugmentConfig(noise=views.noise, mix=views.mix, mask=views.mask)
    return config.replace(**plain, augment=augment), dataclasses.replace(corpus, train=noise(corpus.train), test=test)


def _stand_in_start(draft: Plan) -> Model | None:
    """What to time in place of a run that is still to be trained."""
    if draft.before is None or draft.corpus is None:
        return None
    return untrained_start(draft.config, draft.corpus.train)
