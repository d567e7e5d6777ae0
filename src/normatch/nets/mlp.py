"""The backbone for feature vectors: a network of two hidden layers."""

from torch import Tensor, nn

from normatch.nets.backbone import Backbone, BackboneSpec, register

__all__ = ["MLP"]


class MLP(Backbone):
    """Two hidden layers of 256 and 128 units, each a matrix product, batch norm and leaky ReLU of slope 0.1."""

    def __init__(self, inputs: int, norm_momentum: float) -> None:
        super().__init__(features=128)
        layers: list[nn.Module] = []
        for before, after in ((inputs, 256), (256, 128)):
            layers += [
                nn.Linear(before, after, bias=False),
                nn.BatchNorm1d(after, momentum=norm_momentum),
                nn.LeakyReLU(0.1, inplace=True),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (N, D) to features (N, 128)."""
        features: Tensor = self.layers(x)
        return features


register(
    BackboneSpec(
        name="mlp",
        summary="two hidden layers for feature vectors, 128 features",
        sides=None,
        build=lambda shape, momentum: MLP(shape[0], momentum),
    ),
)
