"""A frozen embedder: it stays as it is, in training too, and its features are standardised before the trained part."""

from pathlib import Path

import torch

from normatch.nets import create_backbone, find_backbone
from normatch.nets.frozen import Frozen
from normatch.nets.weights import load_weights


def made() -> Frozen:
    torch.manual_seed(0)
    net = create_backbone("frozen:small-wide", (3, 16, 16))
    assert isinstance(net, Frozen)
    return net


def test_the_embedder_never_changes() -> None:
    net = made().train()
    before = {name: value.clone() for name, value in net.embedder.state_dict().items()}
    optimiser = torch.optim.SGD((p for p in net.parameters() if p.requires_grad), lr=0.1)
    net(torch.randn(8, 3, 16, 16)).square().sum().backward()
    optimiser.step()
    assert all(torch.equal(value, before[name]) for name, value in net.embedder.state_dict().items())
    assert all(p.grad is not None for p in net.trunk.parameters())
    assert net.trunk.training
    assert not net.embedder.training


def test_features_are_standardised_before_the_trained_part() -> None:
    net, x = made().eval(), torch.randn(4, 3, 16, 16)
    net.mean.fill_(0.5)
    net.std.fill_(2.0)
    torch.testing.assert_close(net(x), net.trunk((net.embedder(x) - 0.5) / 2))


def test_weights_of_the_embedder_alone_are_enough(tmp_path: Path) -> None:
    net, other = made(), create_backbone("small-wide", (3, 16, 16))
    torch.save(other.state_dict(), tmp_path / "weights.pth")
    trunk = {name: value.clone() for name, value in net.trunk.state_dict().items()}
    load_weights(net, tmp_path / "weights.pth")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in net.embedder.state_dict().items())
    assert all(torch.equal(value, trunk[name]) for name, value in net.trunk.state_dict().items())


def test_it_takes_what_its_embedder_takes() -> None:
    inner, spec = find_backbone("efficientnet-lite0"), find_backbone("frozen:efficientnet-lite0")
    assert (spec.sides, spec.statistics) == (inner.sides, inner.statistics)
    assert (spec.name, spec.partial, spec.muon) == ("frozen:efficientnet-lite0", False, False)
