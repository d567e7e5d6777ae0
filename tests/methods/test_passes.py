"""How the views go through the backbone: whose statistics normalise them, and who gets gradients."""

import copy

import pytest
import torch
from torch import Tensor

from normatch.config import Config, from_json
from normatch.errors import UserError
from normatch.methods.parts.passes import embed
from normatch.nets.model import Model
from tests.conftest import make_method

SIZES = (4, 6, 5)


@pytest.fixture
def model() -> Model:
    return make_method("normatch").model.train()


@pytest.fixture
def views() -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    # Views of three kinds that differ, so that whose statistics are used can be told.
    return [
        (torch.randn(n, 1, 8, 8, generator=generator) * 20 * (k + 1) + 60 * k).clamp(0, 255)
        for k, n in enumerate(SIZES)
    ]


def test_joint_is_one_pass(model: Model, views: list[Tensor]) -> None:
    labelled, weak, strong = views
    one = copy.deepcopy(model).features(torch.cat([labelled, strong, weak]))
    z_labelled, z_weak, z_strong = embed(model, labelled, weak, strong, "joint")
    torch.testing.assert_close(torch.cat([z_labelled, z_strong, z_weak]), one)


def test_shared_learns_from_labelled_and_strong_views_alone(
    model: Model, views: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int | None]] = []

    def features(x: Tensor, learning: int | None = None) -> Tensor:
        asked.append((len(x), learning))
        return x.flatten(1).clone().requires_grad_()

    monkeypatch.setattr(model, "features", features)
    labelled, weak, strong = views
    parts = embed(model, labelled, weak, strong, "shared")
    assert asked == [(4 + 5 + 6, 4 + 5)]
    assert [part.requires_grad for part in parts] == [True, False, True]
    for part, images in zip(parts, views, strict=True):
        assert torch.equal(part, images.flatten(1))


def test_a_stored_config_with_another_way_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^settings\.passes is 'split': choose from joint, shared$"):
        from_json(Config, {"settings": {"passes": "split"}})
