"""Ramps against a few lines of NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from normatch.methods.parts.ramps import epoch_ramp, linear_ramp, sigmoid_ramp

STEPS = torch.tensor(200)
AT = np.arange(0, 200)


def values(ramp: Callable[..., torch.Tensor], *settings: float) -> list[float]:
    return [ramp(torch.tensor(step), STEPS, *settings).item() for step in AT]


@pytest.mark.parametrize(("share", "start"), [(0.25, 0.0), (1.0, 0.0), (0.6, 0.1), (0.5, 0.5)])
def test_ramps_interpolate_between_two_shares_of_the_run(share: float, start: float) -> None:
    t = np.interp(AT, [200 * start, max(200 * share, 200 * start + 1e-6)], [0, 1])
    np.testing.assert_allclose(values(linear_ramp, share, start), t, atol=1e-6)
    if start == 0:
        np.testing.assert_allclose(values(sigmoid_ramp, share), np.exp(-5 * (1 - t) ** 2), rtol=1e-5)


def test_without_a_share_the_weight_is_full_from_the_start() -> None:
    assert set(values(linear_ramp, 0.0)) == set(values(sigmoid_ramp, 0.0)) == {1.0}
    assert epoch_ramp(torch.tensor(0), 10, 0) == 1


def test_epoch_ramp_grows_by_epochs() -> None:
    grown = [epoch_ramp(torch.tensor(step), torch.tensor(10), 4).item() for step in (0, 9, 10, 39, 40, 99)]
    assert grown == [0, 0, 0.25, 0.75, 1, 1]
