"""How the views go through the backbone: whose statistics normalise them, and which get gradients."""

import copy
import dataclasses

import pytest
import torch

from normatch.errors import UserError
from normatch.methods import Task, ViewsWanted
from normatch.methods.fixmatch import FixMatch, FixMatchSettings
from normatch.methods.parts.weak_to_strong import WeakToStrong
from normatch.nets.model import Model
from tests.conftest import make_batch, make_method


def made(passes: str) -> WeakToStrong:
    torch.manual_seed(0)
    method = make_method("fixmatch", passes=passes).train()
    assert isinstance(method, WeakToStrong)
    return method


@pytest.mark.parametrize("passes", ["joint", "shared"])
def test_all_views_go_through_the_backbone_together(passes: str) -> None:
    method = made(passes)
    batch = make_batch(method)
    (labelled,), (weak, strong) = batch.labelled, batch.unlabelled
    one = copy.deepcopy(method.model).features(torch.cat([labelled, strong, weak]))
    z_labelled, (z_weak,), (z_strong,), _ = method.embed(batch)
    torch.testing.assert_close(torch.cat([z_labelled, z_strong, z_weak]), one)
    assert z_labelled.requires_grad
    assert z_strong.requires_grad
    assert z_weak.requires_grad == (passes == "joint")


@pytest.mark.parametrize("head", ["softmax", "nfc"])
@pytest.mark.parametrize("consensus", ["nfc", "mlp"])
def test_classifiers_compute_in_float32_whatever_the_backbone_computes_in(head: str, consensus: str) -> None:
    """In bfloat16 two logits are often equal, and a classifier with two largest logits agrees with none."""
    method = make_method("normatch", head=head, consensus=consensus, means="normal")
    model = method.model
    z = torch.randn(64, model.backbone.features).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = [model.head(z), method.model.auxiliary[0](z)]
        pseudo = method(make_batch(method)).pseudo
    assert torch.equal(logits[0], model.head(z.float()))
    assert [x.dtype for x in (*logits, pseudo.weight, pseudo.confidence, pseudo.auxiliary)] == [torch.float32] * 5
    assert all(len(row.unique()) == 3 for row in logits[0])


@pytest.mark.parametrize(
    ("name", "others"), [("fixmatch", {"threshold": 0.375}), ("normatch", {"alignment": False, "means": "normal"})]
)
@pytest.mark.parametrize("pseudo_label", ["soft", "onehot"])
def test_strong_views_learn_the_target_that_the_setting_names(
    name: str, others: dict[str, object], pseudo_label: str
) -> None:
    torch.manual_seed(0)
    method = make_method(name, pseudo_label=pseudo_label, **others).eval()
    batch = make_batch(method)
    outcome = method(batch)
    weak, strong = (method.model(images).detach().double().softmax(1) for images in batch.unlabelled)
    target = weak if pseudo_label == "soft" else torch.eye(3, dtype=torch.float64)[weak.argmax(1)]
    weight = outcome.pseudo.weight.double()
    assert len(weight.unique()) > 1
    expected = (weight * -(target * strong.log()).sum(1)).mean()
    assert outcome.losses["unlabelled"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_loss_of_several_strong_views_is_their_mean() -> None:
    torch.manual_seed(0)
    method = make_method("fixmatch", threshold=0.375).eval()
    method.views = ViewsWanted(unlabelled=("strong", "weak", "crop"))
    batch = make_batch(method)
    first, weak, second = (method.model(images).softmax(1) for images in batch.unlabelled)
    weight, label = (weak.amax(1) >= 0.375).float(), weak.argmax(1)
    expected = [(weight * -p.log()[torch.arange(14), label]).mean() for p in (first, second)]
    torch.testing.assert_close(method(batch).losses["unlabelled"], sum(expected) / 2)


def test_what_a_method_cannot_do_is_refused() -> None:
    with pytest.raises(UserError, match=r"settings\.threshold is 1\.5: give a number from 0 to 1"):
        FixMatchSettings(threshold=1.5).check()
    spec = dataclasses.replace(made("joint").model.spec, backbone="mlp", shape=(5,), mean=(0.0,), std=(1.0,))
    task = Task(prior=(1 / 3, 1 / 3, 1 / 3), labelled=6, unlabelled=30, epoch=10, steps=100)
    with pytest.raises(UserError, match=r"settings\.passes is 'shared', which backbone 'mlp' does not have"):
        FixMatch(Model(spec), task, FixMatchSettings(passes="shared"))
