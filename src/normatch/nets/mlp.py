"""Backbones for feature vectors: a network of two hidden layers, and none at all."""

from torch import Tensor, nn

from normatch.nets.backbone import Backbone, BackboneSpec, register

__all__ = ["MLP", "Linear"]


class MLP(Backbone):
    """Two hidden layers, each a matrix product, batch norm and leaky ReLU of slope 0.1.

    Arguments:
        inputs: The length of a feature vector.
        hidden: The width of the first hidden layer.
        features: The width of the second, which is the output.
        norm_momentum: The batch-norm momentum.
    """

    def __init__(self, inputs: int, hidden: int = 256, features: int = 128, norm_momentum: float = 0.1) -> None:
        super().__init__(features)
        layers: list[nn.Module] = []
        for before, after in ((inputs, hidden), (hidden, features)):
            layers += [
                nn.Linear(before, after, bias=False),
                nn.BatchNorm1d(after, momentum=norm_momentum),
                nn.LeakyReLU(0.1, inplace=True),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (N, D) to features (N, features)."""
        features: Tensor = self.layers(x)
        return features


class Linear(Backbone):
    """The identity: with a linear head on top, a linear classifier of given features.

    Arguments:
        inputs: The length of a feature vector, also of the output.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__(features=inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (N, D), unchanged."""
        return x


register(
    BackboneSpec(
        name="mlp",
        summary="two hidden layers for feature vectors, 128 features",
        sides=None,
        build=lambda shape, momentum: MLP(shape[0], norm_momentum=momentum),
    ),
)
register(
    BackboneSpec(
        name="linear",
        summary="no hidden layer: the feature vectors themselves, for features made elsewhere",
        sides=None,
        build=lambda shape, momentum: Linear(shape[0]),
    ),
)
