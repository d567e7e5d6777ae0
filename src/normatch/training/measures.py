"""The measurements of one step: its losses, the method's metrics, and the curves of its pseudo-labels."""

import torch
from torch import Tensor

from normatch.errors import UserError
from normatch.methods import Outcome, PseudoLabels
from normatch.training.curves import Mean, pseudo_label_curves

__all__ = ["RESERVED", "RESERVED_PREFIXES", "step_means", "total_loss"]

RESERVED = ("step", "seconds", "steps_per_second", "loss")
RESERVED_PREFIXES = ("loss/", "pseudo/", "test/", "validation/", "labelled/")
"""Names reserved for the engine's own records, which no metric of a method may use."""


def total_loss(outcome: Outcome) -> Tensor:
    """The sum of a method's losses, which is minimised; raises UserError if there is none, one is not a scalar, or they
    depend on no parameter."""
    if not isinstance(outcome, Outcome):
        raise UserError(f"the method gives {_kind(outcome)}: return an Outcome of losses and metrics, both by name")
    if not outcome.losses:
        raise UserError("the method gives no losses: return at least one by name")
    for name, value in outcome.losses.items():
        _check_scalar(f"loss {name!r}", value)
    total = torch.stack(list(outcome.losses.values())).sum()
    if not total.requires_grad:
        raise UserError("the method's losses depend on no parameter: return them with their gradients, not detached")
    return total


def step_means(outcome: Outcome, loss: Tensor, truth: Tensor, classes: int) -> dict[str, Mean]:
    """All measurements by name, as open means; ``truth`` are the true labels of the unlabelled images."""
    one = torch.ones((), device=loss.device)
    _check_metrics(outcome.metrics)
    values = {"loss": loss} | {f"loss/{name}": value for name, value in outcome.losses.items()} | outcome.metrics
    means: dict[str, Mean] = {name: (value.float(), one) for name, value in values.items()}
    if outcome.pseudo is not None:
        _check_pseudo_labels(outcome.pseudo, truth)
        means |= pseudo_label_curves(outcome.pseudo, truth, classes)
    return means


def _check_metrics(metrics: dict[str, Tensor]) -> None:
    """Raise UserError if a metric of the method has a reserved name or is not a scalar tensor."""
    if not isinstance(metrics, dict):
        raise UserError(f"metrics of the method's outcome are {_kind(metrics)}: give a dict, or {{}} if there are none")
    for name, value in metrics.items():
        if name in RESERVED or name.startswith(RESERVED_PREFIXES):
            raise UserError(f"the method has a metric {name!r}, a name that each run's record has already: rename it")
        _check_scalar(f"metric {name!r}", value)


def _check_scalar(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor) or value.ndim:
        raise UserError(f"{name} of the method is {_kind(value)}: give a tensor of one number, of shape ()")


def _check_pseudo_labels(pseudo: PseudoLabels, truth: Tensor) -> None:
    """Raise UserError unless there is one of everything for each image: others might be broadcast, or counted wrongly.

    Only shapes and types are looked at, never values, so that the step stays one graph.
    """
    if not isinstance(pseudo, PseudoLabels):
        raise UserError(f"pseudo of the method's outcome is {_kind(pseudo)}: give PseudoLabels, or None")
    for name, value in zip(PseudoLabels._fields, pseudo, strict=True):
        if name == "auxiliary" and value is None:
            continue
        if not isinstance(value, Tensor) or value.shape != truth.shape:
            raise UserError(
                f"{name} of the pseudo-labels is {_kind(value)}: give a tensor of shape {tuple(truth.shape)}, "
                "one value for each unlabelled image"
            )
    for name, found, needed in (
        ("label", pseudo.label.dtype, torch.int64),
        ("trusted", pseudo.trusted.dtype, torch.bool),
    ):
        if found != needed:
            raise UserError(f"{name} of the pseudo-labels is of {found}: give a tensor of {needed}")


def _kind(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
