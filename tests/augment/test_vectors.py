"""Views of feature vectors: noise in units of each dimension, mixing up to a share, exact shares of hidden numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normatch.augment.vectors import VectorNumbers, draw_mask, draw_mix, draw_noise, vector_view


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_noise_has_the_scale_of_each_dimension() -> None:
    noise = draw_noise(40_000, 0.2, torch.tensor([1.0, 10.0, 0.0]), seeded())
    view = vector_view(torch.full((40_000, 3), 5.0), VectorNumbers(noise=noise))
    assert view.mean(0).tolist() == pytest.approx([5, 5, 5], abs=0.05)
    assert view.std(0).tolist() == pytest.approx([0.2, 2.0, 0.0], rel=0.03)


@pytest.mark.parametrize(
    ("dimensions", "share", "hidden"), [(10, 0.0, 0), (10, 0.3, 3), (10, 1.0, 10), (9, 0.3, 3), (7, 0.5, 4)]
)
def test_mask_hides_a_share_evenly_rounded_to_a_count(dimensions: int, share: float, hidden: int) -> None:
    centre = torch.arange(float(dimensions))
    mask = draw_mask(20_000, share, centre, seeded())
    masked, _ = mask
    assert (masked.sum(1) == hidden).all()
    assert torch.allclose(masked.float().mean(0), torch.tensor(hidden / dimensions), atol=0.02)
    vectors = torch.full((20_000, dimensions), -1.0)
    assert torch.equal(vector_view(vectors, VectorNumbers(mask=mask)), torch.where(masked, centre, vectors))


@given(n=st.integers(0, 40), d=st.integers(1, 9), most=st.floats(0, 0.5), seed=st.integers(0, 2**32))
def test_mix_stays_on_the_way_to_another_sample(n: int, d: int, most: float, seed: int) -> None:
    """The law of mixing: a convex sum with one other row of the batch, of which at most a share comes in."""
    vectors = torch.randn(n, d, generator=seeded(seed))
    mix = draw_mix(n, most, seeded(seed))
    partner, share = mix
    assert sorted(partner.tolist()) == list(range(n))
    assert ((share >= 0) & (share <= most)).all()
    mixed, partners = vector_view(vectors, VectorNumbers(mix=mix)), vectors[partner]
    torch.testing.assert_close(mixed, (1 - share) * vectors + share * partners)


def test_shares_of_a_mix_are_even() -> None:
    _, share = draw_mix(20_000, 0.4, seeded())
    assert float(share.mean()) == pytest.approx(0.2, abs=0.005)
    assert float(share.std()) == pytest.approx(0.4 / 12**0.5, abs=0.005)
