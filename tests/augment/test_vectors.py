"""Stages of feature vectors: noise in units of each dimension, mixing up to a share, exact shares of hidden numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normatch.augment.mix import Mix
from normatch.augment.vectors import Mask, Noise, Pick

CPU = torch.device("cpu")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_noise_has_the_scale_of_each_dimension() -> None:
    noise = Noise(0.2, torch.tensor([1.0, 10.0, 0.0]))
    view = noise.apply(torch.full((40_000, 3), 5.0), *noise.draw(40_000, seeded(), CPU))
    assert view.mean(0).tolist() == pytest.approx([5, 5, 5], abs=0.05)
    assert view.std(0).tolist() == pytest.approx([0.2, 2.0, 0.0], rel=0.03)


def test_each_of_the_copies_is_picked_as_often() -> None:
    pick = Pick(2, 4)
    (at,) = pick.draw(9_000, seeded(), CPU)
    assert at.bincount().tolist() == pytest.approx([0, 0, 3_000, 3_000, 3_000], abs=200)
    copies = torch.arange(9_000 * 5.0).view(9_000, 5, 1)
    assert torch.equal(pick.apply(copies, at).flatten(), 5 * torch.arange(9_000) + at.float())


@pytest.mark.parametrize(
    ("dimensions", "share", "hidden"), [(10, 0.0, 0), (10, 0.3, 3), (10, 1.0, 10), (9, 0.3, 3), (7, 0.5, 4)]
)
def test_mask_hides_a_share_evenly_rounded_to_a_count(dimensions: int, share: float, hidden: int) -> None:
    centre = torch.arange(float(dimensions))
    mask = Mask(share, centre)
    (masked,) = mask.draw(20_000, seeded(), CPU)
    assert (masked.sum(1) == hidden).all()
    assert torch.allclose(masked.float().mean(0), torch.tensor(hidden / dimensions), atol=0.02)
    vectors = torch.full((20_000, dimensions), -1.0)
    assert torch.equal(mask.apply(vectors, masked), torch.where(masked, centre, vectors))


@given(n=st.integers(0, 40), d=st.integers(1, 9), most=st.floats(0, 0.5), seed=st.integers(0, 2**32))
def test_mix_stays_on_the_way_to_another_sample(n: int, d: int, most: float, seed: int) -> None:
    """The law of mixing: a convex sum with one other row of the batch, of which at most a share comes in."""
    vectors = torch.randn(n, d, generator=seeded(seed))
    mix = Mix(most)
    partner, share = mix.draw(n, seeded(seed), CPU)
    assert sorted(partner.tolist()) == list(range(n))
    assert ((share >= 0) & (share <= most)).all()
    expected = (1 - share) * vectors + share * vectors[partner]
    torch.testing.assert_close(mix.apply(vectors, partner, share), expected)
    images = torch.randint(0, 256, (n, 3, 2, 2), dtype=torch.uint8, generator=seeded(seed))
    weight = share.view(-1, 1, 1, 1)
    mixed = (1 - weight) * images + weight * images[partner]
    torch.testing.assert_close(mix.apply(images, partner, share).float(), mixed.round(), atol=1, rtol=0)


def test_shares_of_a_mix_are_even() -> None:
    _, share = Mix(0.4).draw(20_000, seeded(), CPU)
    assert float(share.mean()) == pytest.approx(0.2, abs=0.005)
    assert float(share.std()) == pytest.approx(0.4 / 12**0.5, abs=0.005)
