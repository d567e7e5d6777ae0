"""The methods and networks that the search for a recipe of minutes tried."""

import copy
from pathlib import Path
from types import ModuleType

import pytest
import torch

from normatch.methods import Batch, Task, methods
from normatch.methods.normatch import NorMatchSettings
from normatch.nets import create_backbone
from normatch.nets.model import Model, ModelSpec
from normatch.training import train
from tests.docs.scripts import BENCHMARKS, brief, load_script, noise, put_registries_back

TRIED = (
    "sharp",
    "decided",
    "taught",
    "taught-late",
    "together",
    "averaged",
    "balanced",
    "mirrored",
    "remembered",
    "cutmix",
    "mixup",
)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with its networks and methods registered for the time of a test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = load_script("tried")
    put_registries_back(monkeypatch)
    module.add_what_was_tried()
    return module


@pytest.mark.parametrize("method", [*(f"normatch-{name}" for name in TRIED), "all-labels"])
def test_its_methods_train(tried: ModuleType, method: str, tmp_path: Path) -> None:
    lines = list(train(brief(method, 4), tmp_path / "run", corpus=noise()).metrics())
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]
    assert all(line["loss"] > 0 for line in lines if "loss" in line)


def batch_and_model(positions: list[int], step: int = 0) -> tuple[Batch, Model, Task]:
    torch.manual_seed(0)
    heads = methods.get("normatch").heads(NorMatchSettings())
    spec = ModelSpec("quick-resnet", (3, 16, 16), tuple("abc"), (120.0,) * 3, (60.0,) * 3, None, *heads)
    images = torch.randint(0, 256, (3, len(positions), 3, 16, 16), dtype=torch.uint8)
    batch = Batch(
        labelled=(images[0],),
        labels=torch.zeros(len(positions), dtype=torch.int64),
        unlabelled=(images[1], images[2]),
        positions=torch.tensor(positions),
        step=torch.tensor(step),
        teacher=Model(spec).eval(),
    )
    return batch, Model(spec), Task(classes=3, labelled=9, unlabelled=20, epoch=1, steps=100)


@pytest.mark.parametrize(("step", "taught"), [(0, False), (24, False), (25, True)])
def test_the_averaged_weights_teach_from_a_quarter_of_the_run_on(tried: ModuleType, step: int, taught: bool) -> None:
    batch, model, task = batch_and_model([1, 2, 3], step)
    method = tried.TaughtLate(model, task, NorMatchSettings(alignment=False))
    label = method(batch).pseudo.confidence
    teacher = batch.teacher(batch.unlabelled[0]).softmax(1).amax(1)
    assert torch.allclose(label, teacher, atol=1e-5) == taught


@pytest.mark.parametrize(("step", "together"), [(49, False), (50, True)])
def test_network_and_averaged_weights_are_asked_together_from_half_of_the_run_on(
    tried: ModuleType, step: int, together: bool
) -> None:
    batch, model, task = batch_and_model([1, 2, 3], step)
    method = tried.Together(model, task, NorMatchSettings(alignment=False))
    z = torch.randn(3, model.backbone.features)
    method.embed = lambda _: (z, z, z)
    own, teacher = model.head(z).softmax(1), batch.teacher(batch.unlabelled[0]).softmax(1)
    expected = (own + teacher) / 2 if together else own
    torch.testing.assert_close(method(batch).pseudo.confidence, expected.amax(1))


def test_averaged_weights_are_asked_with_the_statistics_of_the_batch(tried: ModuleType) -> None:
    batch, model, task = batch_and_model([1, 2, 3])
    statistics = {name: value.clone() for name, value in model.named_buffers()}
    method = tried.Averaged(model, task, NorMatchSettings(alignment=False, passes="split"))
    z = method.embed(batch)[1]
    p = method.believe(z)
    expected = copy.deepcopy(batch.teacher).train()(batch.unlabelled[0]).softmax(1)
    torch.testing.assert_close(p, expected)
    assert not z.requires_grad
    # The network's own statistics are those of the views that it learns from.
    found = model.get_buffer("backbone.stem.norm.running_mean").clone()
    model.load_state_dict(statistics, strict=False)
    model.features(torch.cat([*batch.labelled, batch.unlabelled[1]]))
    torch.testing.assert_close(found, model.get_buffer("backbone.stem.norm.running_mean"))
    assert not torch.allclose(found, statistics["backbone.stem.norm.running_mean"])


def test_classes_become_equally_frequent(tried: ModuleType) -> None:
    torch.manual_seed(0)
    logits = 3 * torch.randn(4096, 5) + torch.tensor([2.0, 0, 0, 0, -2])
    p, balance = logits.softmax(1), tried.Balance(5)
    assert p.mean(0).amax() > 0.35
    for _ in range(300):
        found = balance(p)
    torch.testing.assert_close(found.mean(0), torch.full((5,), 0.2), atol=1e-3, rtol=0)
    # By a factor for each class: within a class nothing changes places.
    ratio = found / p
    torch.testing.assert_close(ratio / ratio[:, :1], (ratio[0] / ratio[0, 0]).expand(4096, 5), rtol=1e-3, atol=0)


def test_a_mirror_image_is_asked_as_well(tried: ModuleType) -> None:
    batch, model, task = batch_and_model([1, 2, 3])
    method = tried.Mirrored(model, task, NorMatchSettings(alignment=False, passes="split")).eval()
    p = method.believe(method.embed(batch)[1])
    weak = batch.unlabelled[0]
    torch.testing.assert_close(p, (model(weak).softmax(1) + model(weak.flip(3)).softmax(1)) / 2)


def test_an_image_remembers_its_pseudo_labels(tried: ModuleType) -> None:
    batch, model, task = batch_and_model([5, 7, 9])
    method = tried.Remembered(model, task, NorMatchSettings(alignment=False))
    method._positions = batch.positions
    z = torch.randn(2, 3, model.backbone.features)
    first, second = (model.head(features).softmax(1) for features in z)
    torch.testing.assert_close(method.believe(z[0]), first)
    torch.testing.assert_close(method.believe(z[1]), (0.7 * first + second) / 1.7)
    assert method.memory.any(1).nonzero().flatten().tolist() == [5, 7, 9]


@pytest.mark.parametrize("name", ["Mixed", "MixedUp"])
def test_what_is_mixed_and_how_much(tried: ModuleType, name: str) -> None:
    _, model, task = batch_and_model([1, 2])
    method = getattr(tried, name)(model, task, NorMatchSettings())
    torch.manual_seed(0)
    white, black = (torch.full((400, 3, 16, 16), value, dtype=torch.uint8) for value in (255, 0))
    mixed, own = method.mix(white, black)
    torch.testing.assert_close(mixed.float().mean((1, 2, 3)) / 255, own, atol=1e-4, rtol=1e-4)
    assert 0.4 < (own == 1).float().mean() < 0.6
    assert own.min() < 0.6


def test_pseudo_labels_are_mixed_as_images_are(tried: ModuleType) -> None:
    _, model, task = batch_and_model([1, 2])
    method = tried.Mixed(model, task, NorMatchSettings())
    method._own = torch.tensor([1.0, 0.25])
    logits, p = torch.randn(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    weight, labels = torch.tensor([0.5, 1.0]), torch.zeros(2, dtype=torch.int64)
    loss = method.losses(torch.randn(2, 3), labels, logits, p, weight)["unlabelled"]
    log = logits.log_softmax(1)
    expected = -(0.5 * log[0, 1] + 0.25 * log[1, 2] + 0.75 * 0.5 * log[1, 1]) / 2
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("quick-resnet-48", 384),
        ("quick-resnet-64", 512),
        ("quick-resnet-late-256", 256),
        ("quick-resnet-late-384", 384),
        ("quick-resnet-late-384-gelu", 384),
        ("quick-resnet-late-384-max", 384),
        ("quick-resnet-late-512", 512),
        ("quick-resnet-222", 256),
        ("quick-resnet-331", 256),
        ("wrn-10-4", 256),
        ("wrn-144", 128),
        ("wrn-244", 128),
        ("wrn-16-4", 256),
    ],
)
def test_its_networks_learn_from_a_part_of_a_batch(tried: ModuleType, name: str, features: int) -> None:
    net = create_backbone(name, (3, 16, 16))
    z = net(torch.randn(4, 3, 16, 16), 2)
    assert z.shape == (4, features)
    z.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize(
    ("name", "convolutions"),
    [("quick-resnet-222", 16), ("quick-resnet-331", 18), ("wrn-144", 1 + 18 + 3), ("wrn-244", 1 + 20 + 3)],
)
def test_deeper_and_uneven_networks_have_their_convolutions(tried: ModuleType, name: str, convolutions: int) -> None:
    layers = create_backbone(name, (3, 16, 16)).modules()
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in layers) == convolutions


def test_the_variants_of_a_network_differ_from_it(tried: ModuleType) -> None:
    x = torch.randn(4, 3, 16, 16)
    plain, *variants = (
        create_backbone(f"quick-resnet-late-384{variant}", (3, 16, 16)) for variant in ("", "-gelu", "-max")
    )
    for variant in variants:
        variant.load_state_dict(plain.state_dict())
        assert not torch.allclose(variant(x), plain(x))
