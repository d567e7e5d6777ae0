"""Networks of the timm library, pretrained or not: ``timm:resnet18.a1_in1k``, ``timm-scratch:resnet18``."""

import difflib
from functools import partial
from types import ModuleType

import torch
from torch import Tensor, nn

from normatch.errors import UserError, reason
from normatch.nets.backbone import Backbone, BackboneSpec, families

__all__ = ["TimmNetwork"]

PRETRAINED, SCRATCH = "timm", "timm-scratch"

# The sizes that a network takes are only known by building it, so nearly all are allowed here.
SIDES = (1, 4096)


class TimmNetwork(Backbone):
    """A network of timm without its last layer, with one momentum for all batch norms.

    If ``pretrained``, it starts from timm's weights, which :meth:`load_pretrained` downloads. For images of one
    channel, timm sums the first layer's weights over the colours.
    """

    def __init__(self, name: str, pretrained: bool, shape: tuple[int, ...], norm_momentum: float) -> None:
        net = _timm().create_model(name, pretrained=False, num_classes=0, in_chans=shape[0])
        # timm's num_features is wrong for some of its networks.
        super().__init__(features=_features(name, net, shape))
        self.name, self.pretrained, self.channels = name, pretrained, shape[0]
        self.net = net
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
                module.momentum = norm_momentum

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) to features (N, features)."""
        features: Tensor = self.net(x)
        return features

    def load_pretrained(self) -> None:
        if not self.pretrained:
            return
        try:
            start = _timm().create_model(self.name, pretrained=True, num_classes=0, in_chans=self.channels)
        except Exception as error:  # connection, hub, cache and file errors are of many kinds
            raise UserError(
                f"cannot fetch the weights of timm's {self.name} ({reason(error)}): fix the connection, or start "
                f"without them with --backbone {SCRATCH}:{self.name}"
            ) from error
        self.net.load_state_dict(start.state_dict())


def _spec(pretrained: bool, name: str) -> BackboneSpec:
    timm = _timm()
    known = {*timm.list_models(), *timm.list_models(pretrained=True)}
    family = PRETRAINED if pretrained else SCRATCH
    if name not in known:
        close = difflib.get_close_matches(name, sorted(known), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "see timm.list_models() in Python"
        raise UserError(f"backbone is {family + ':' + name!r}: timm {timm.__version__} has no such network; {hint}")
    return BackboneSpec(
        name=f"{family}:{name}",
        summary=f"timm's {name}, {'pretrained' if pretrained else 'from random weights'}",
        sides=SIDES,
        build=partial(TimmNetwork, name, pretrained),
        statistics=partial(_statistics, name) if pretrained else None,
    )


def _statistics(name: str, shape: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The channel means and deviations of the weights' training images, on the scale 0 … 255; for grey images averaged
    over the colours."""
    config = _timm().get_pretrained_cfg(name)
    mean, std = (tuple(255.0 * value for value in values) for values in (config.mean, config.std))
    return (mean, std) if len(mean) == shape[0] else ((sum(mean) / len(mean),), (sum(std) / len(std),))


def _features(name: str, net: nn.Module, shape: tuple[int, ...]) -> int:
    """The number of features that the network computes from an image of this shape."""
    net.eval()
    try:
        with torch.no_grad():
            features: Tensor = net(torch.zeros(1, *shape))
    except Exception as error:  # networks raise various errors for an unsupported size
        side = getattr(net, "pretrained_cfg", {}).get("input_size", shape)[-1]
        raise UserError(
            f"timm's {name} does not take images of shape {shape} ({reason(error)}): set image_size to {side}"
        ) from error
    net.train()
    return features.shape[1]


def _timm() -> ModuleType:
    try:
        import timm
    except Exception as error:  # a torchvision that was built for another torch can raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            raise UserError("this backbone needs timm: pip install 'normatch[timm]'") from None
        raise UserError(
            f"timm cannot be imported ({reason(error)}): reinstall it, and the torchvision that matches torch "
            f"{torch.__version__}"
        ) from error
    module: ModuleType = timm
    return module


families.add(PRETRAINED, partial(_spec, True))
families.add(SCRATCH, partial(_spec, False))
