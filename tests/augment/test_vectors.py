"""Views of feature vectors: noise in units of each dimension, mixing up to a share, exact shares of hidden numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normatch.augment.vectors import apply_mask, apply_mix, apply_noise, draw_mask, draw_mix, draw_noise


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


@pytest.mark.parametrize(("dimensions", "share", "hidden"), [(9, 0.3, 3), (7, 0.5, 4), (9, 0.25, 2)])
def test_a_share_between_two_counts_is_rounded(dimensions: int, share: float, hidden: int) -> None:
    params = draw_mask(20, share, torch.zeros(dimensions), torch.Generator().manual_seed(0), "cpu")
    assert (params.masked.sum(1) == hidden).all()


@given(n=st.integers(0, 40), d=st.integers(1, 9), most=st.floats(0, 0.5), seed=st.integers(0, 2**32))
def test_mix_stays_on_the_way_to_another_sample(n: int, d: int, most: float, seed: int) -> None:
    """The law of mixing: a convex sum with one other row of the batch, of which at most a share comes in."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(n, d, generator=generator)
    params = draw_mix(n, most, generator, "cpu")
    assert sorted(params.partner.tolist()) == list(range(n))
    assert ((params.share >= 0) & (params.share <= most)).all()
    mixed, partners = apply_mix(vectors, params), vectors[params.partner]
    torch.testing.assert_close(mixed, (1 - params.share) * vectors + params.share * partners)
    far = (partners - vectors).norm(dim=1)
    assert ((mixed - vectors).norm(dim=1) <= most * far + 1e-5).all()
    assert ((mixed - vectors).norm(dim=1) <= (mixed - partners).norm(dim=1) + 1e-5).all(), "nearer to itself"


def test_shares_of_a_mix_are_even() -> None:
    share = draw_mix(20_000, 0.4, torch.Generator().manual_seed(0), "cpu").share
    assert float(share.mean()) == pytest.approx(0.2, abs=0.005)
    assert float(share.std()) == pytest.approx(0.4 / 12**0.5, abs=0.005)
