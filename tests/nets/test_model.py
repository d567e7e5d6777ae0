"""The model: how its linear layers start, and which inputs it takes."""

import math
from typing import Literal

import pytest
import torch
from torch import nn

from normatch.nets.model import HeadSpec, Model, ModelSpec


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
def test_the_last_layer_starts_with_glorot_s_normal_weights(kind: Literal["softmax", "mlp"]) -> None:
    """Their variance is 2 / (features + classes), and biases are 0. PyTorch's own start has 1 / (3 · features)."""
    torch.manual_seed(0)
    last = [m for m in HeadSpec(kind).build(256, 100).modules() if isinstance(m, nn.Linear)][-1]
    assert last.weight.shape == (100, 256)
    assert float(last.weight.detach().std()) == pytest.approx(math.sqrt(2 / (256 + 100)), rel=0.02)
    assert float(last.weight.detach().abs().max()) > 3 * math.sqrt(2 / (256 + 100)), "a normal distribution has tails"
    assert not last.bias.any()


def test_images_may_be_float_on_the_scale_of_bytes() -> None:
    """So that a method can mix them."""
    model = Model(ModelSpec("small-wide", (1, 8, 8), ("a", "b"), (100.0,), (50.0,))).eval()
    images = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(images), model(images.float()))
