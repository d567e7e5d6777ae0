"""Views of feature vectors: noise in units of each dimension, and exact shares of hidden dimensions."""

import pytest
import torch

from normatch.augment.vectors import apply_mask, apply_noise, draw_mask, draw_noise


def test_noise_has_the_scale_of_each_dimension() -> None:
    scale = torch.tensor([1.0, 10.0, 0.0])
    params = draw_noise(40_000, 0.2, scale, torch.Generator().manual_seed(0), "cpu")
    view = apply_noise(torch.full((40_000, 3), 5.0), params)
    assert view.mean(0).tolist() == pytest.approx([5, 5, 5], abs=0.05)
    assert view.std(0).tolist() == pytest.approx([0.2, 2.0, 0.0], rel=0.03)


@pytest.mark.parametrize(("share", "hidden"), [(0.0, 0), (0.3, 3), (1.0, 10)])
def test_mask_hides_an_exact_share_evenly(share: float, hidden: int) -> None:
    centre = torch.arange(10.0)
    params = draw_mask(20_000, share, centre, torch.Generator().manual_seed(0), "cpu")
    assert (params.masked.sum(1) == hidden).all()
    assert torch.allclose(params.masked.float().mean(0), torch.tensor(hidden / 10), atol=0.02)
    vectors = torch.full((20_000, 10), -1.0)
    assert torch.equal(apply_mask(vectors, params), torch.where(params.masked, centre, vectors))
