"""NorMatch's own promises: the flow never moves the backbone, the ramp, the choices of the paper's tables."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from normatch.errors import UserError
from normatch.flow import NormalizingFlowClassifier
from normatch.methods import Method
from normatch.methods.normatch import NorMatch, NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.methods.parts.pseudo_labels import AdaptiveWeights
from normatch.methods.parts.ramps import epoch_ramp
from normatch.nets.model import HeadSpec
from tests.conftest import make_batch, make_method


def flows(method: Method) -> list[NormalizingFlowClassifier]:
    return [m for m in method.modules() if isinstance(m, NormalizingFlowClassifier)]


@pytest.mark.parametrize(
    ("choices", "moved"),
    [({}, False), ({"consensus": "nfc+nfc"}, False), ({"consensus": "mlp"}, False), ({"stop_gradient": False}, True)],
)
def test_main_and_auxiliary_losses_leave_each_other_alone(choices: dict[str, object], moved: bool) -> None:
    method = make_method("normatch", means="normal", **choices).train()
    losses = method(make_batch(method)).losses
    (losses.pop("labelled") + losses.pop("unlabelled")).backward(retain_graph=True)
    assert all(p.grad is None for p in method.model.auxiliary.parameters())
    assert set(losses) == ({"auxiliary"} if choices.get("consensus") == "mlp" else {"auxiliary", "density"})
    for loss in losses.values():
        method.zero_grad()
        loss.backward(retain_graph=True)
        assert any(p.grad is not None and p.grad.any() for p in method.model.auxiliary.parameters())
        assert any(p.grad is not None and p.grad.any() for p in method.model.backbone.parameters()) == moved


@pytest.mark.parametrize(("step", "ramp"), [(0, 0.0), (9, 0.0), (10, 0.2), (25, 0.4), (49, 0.8), (50, 1.0), (99, 1.0)])
def test_auxiliary_losses_grow_over_five_epochs(step: int, ramp: float) -> None:
    assert epoch_ramp(torch.tensor(step), epoch=10, epochs=5).item() == pytest.approx(ramp)


def test_the_ramp_weighs_the_auxiliary_losses_alone() -> None:
    method = make_method("normatch", alignment=False, auxiliary_pseudo_labels=True).eval()
    early, late = (method(make_batch(method, step)).losses for step in (25, 50))
    assert set(late) == {"labelled", "unlabelled", "auxiliary", "density", "auxiliary_pseudo"}
    for name, loss in late.items():
        share = 1.0 if name in ("labelled", "unlabelled") else 0.4
        assert early[name].item() == pytest.approx(share * loss.item()), name


def test_the_flow_learns_pseudo_labels_where_asked() -> None:
    torch.manual_seed(0)
    method = make_method("normatch", auxiliary_pseudo_labels=True, means="normal").eval()
    batch = make_batch(method)
    outcome = method(batch)
    flow, pseudo = method.model.outputs(batch.unlabelled[0]).flow_probabilities, outcome.pseudo
    assert flow is not None
    expected = pseudo.weight * -flow.log()[torch.arange(len(flow)), pseudo.label]
    assert outcome.losses["auxiliary_pseudo"].item() == pytest.approx(expected.mean().item(), rel=1e-4)
    assert len(pseudo.weight.unique()) > 1


def test_the_defaults_are_the_papers() -> None:
    assert NorMatchSettings() == NorMatchSettings(
        pseudo_label="soft",
        alignment=True,
        passes="joint",
        temperature=0.5,
        consensus="nfc",
        disagree="min",
        head="softmax",
        stop_gradient=True,
        auxiliary_pseudo_labels=False,
        num_weight=1e-6,
        decide_after=1.0,
        adaptive=False,
        flow_layers=6,
        flow_hidden=32,
        flow_lr=1e-3,
        flow_clip=50.0,
        flow_ramp=5,
        means="zero",
        flow_dropout="off",
        accumulate_mixture=False,
    )


def test_settings_say_how_the_classifiers_are_built() -> None:
    settings = NorMatchSettings(flow_layers=3, flow_hidden=8, means="normal", flow_dropout="always")
    nfc = HeadSpec("nfc", layers=3, hidden=8, means="normal", dropout=True)
    assert NorMatch.heads(settings) == (HeadSpec(), (nfc,))
    assert NorMatch.heads(replace(settings, head="nfc", consensus="nfc+nfc")) == (nfc, (nfc, nfc))
    assert NorMatch.heads(replace(settings, consensus="mlp")) == (HeadSpec(), (HeadSpec("mlp", layers=3),))
    second = make_method("normatch", consensus="mlp").model.auxiliary
    assert 80_000 < sum(p.numel() for p in second.parameters()) < 95_000, "0.09 M in Table 2"


def test_lambda_scales_the_density_alone() -> None:
    losses = []
    for weight in (1e-6, 3e-6):
        torch.manual_seed(0)
        method = make_method("normatch", num_weight=weight).train()
        losses.append(method(make_batch(method)).losses)
    assert losses[1]["density"].item() == pytest.approx(3 * losses[0]["density"].item())
    assert losses[1]["auxiliary"].item() == losses[0]["auxiliary"].item()


@pytest.mark.parametrize("head", ["softmax", "nfc"])
def test_flows_are_trained_by_adamw_and_clipped(head: str) -> None:
    method = make_method("normatch", head=head)
    groups = method.groups(OptimConfig())
    assert [(g.rule, g.lr, g.weight_decay, g.clip) for g in groups] == [
        ("sgd", 0.03, 5e-4, None),
        ("sgd", 0.03, 0.0, None),
        ("adamw", 1e-3, 5e-4, 50.0),
    ]
    assert {id(p) for p in groups[-1].params} == {id(p) for flow in flows(method) for p in flow.parameters()}
    # The published mistake is a switch: gradients of the mixtures' means, scales and weights are never set to zero.
    method = make_method("normatch", accumulate_mixture=True, head=head)
    *_, clipped, last = method.groups(OptimConfig())
    assert (last.accumulate, last.clip) == (True, None)
    assert (clipped.accumulate, clipped.clip) == (False, 50.0)
    mixtures = [flow.mixture for flow in flows(method)]
    assert len(mixtures) == (2 if head == "nfc" else 1)
    assert {id(p) for p in last.params} == {id(p) for mixture in mixtures for p in mixture.parameters()}


@pytest.mark.parametrize("head", ["softmax", "nfc"])
@pytest.mark.parametrize(("when", "expected"), [("first-epoch", [0.5, 0.5, 0.0]), ("always", [0.5, 0.5, 0.5])])
def test_dropout_is_on_in_the_first_epoch_only_or_always(when: str, expected: list[float], head: str) -> None:
    method = make_method("normatch", flow_dropout=when, head=head).train()
    for step, rate in zip((0, 9, 10), expected, strict=True):
        method(make_batch(method, step=step))
        rates = [flow.dropout_rate for flow in flows(method)]
        assert [r.item() for r in rates if r is not None] == [rate] * (2 if head == "nfc" else 1)


@pytest.mark.parametrize(
    ("choices", "names"),
    [
        ({"stop_gradient": False, "passes": "shared"}, "stop_gradient"),
        ({"num_weight": -1.0}, "num_weight"),
        ({"flow_layers": 0}, "flow_layers"),
        ({"decide_after": 1.5}, "decide_after is 1.5: give a share"),
    ],
)
def test_contradictions_are_named(choices: dict[str, object], names: str) -> None:
    with pytest.raises(UserError, match=names):
        NorMatchSettings(**choices).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("adaptive", [False, True])
def test_pseudo_labels_are_soft_until_the_decision_and_then_one_hot(adaptive: bool) -> None:
    def made(**choices: object) -> Any:
        torch.manual_seed(0)
        method: Any = make_method("normatch", means="normal", **choices)
        if method.adaptive is not None:
            method.adaptive.mean.fill_(0.9)  # near its start all weights are 1
            method.adaptive.variance.fill_(0.5)
        return method

    def same(step: int, **choices: object) -> bool:
        both = made(decide_after=0.6, adaptive=adaptive), made(**choices)
        found, expected = (method(make_batch(method, step)) for method in both)
        weights = torch.equal(found.pseudo.weight, expected.pseudo.weight)
        return weights and bool(found.losses["unlabelled"] == expected.losses["unlabelled"])

    decided: dict[str, object] = {"pseudo_label": "onehot", "adaptive": adaptive}
    steps = (0, 59, 60, 99)  # of 100
    assert [same(step) for step in steps] == [True, True, False, False]
    assert [same(step, **decided) for step in steps] == [False, False, True, True]
    if adaptive:  # the confidence is averaged before the decision already
        method = made(decide_after=0.6, adaptive=True)
        before = method.state_dict()["adaptive.mean"].clone()
        method(make_batch(method, step=0))
        assert method.state_dict()["adaptive.mean"] != before


@pytest.mark.parametrize("disagree", ["min", "drop"])
def test_confidence_is_the_head_s_and_auxiliary_is_the_flow_s(disagree: str) -> None:
    torch.manual_seed(0)
    method = make_method("normatch", means="normal", disagree=disagree).eval()
    batch = make_batch(method)
    pseudo = method(batch).pseudo
    head, flow, _ = method.model.outputs(batch.unlabelled[0])
    assert flow is not None
    aligned = head / head.mean(0)
    aligned /= aligned.sum(1, keepdim=True)
    torch.testing.assert_close(pseudo.confidence, aligned.amax(1))
    torch.testing.assert_close(pseudo.auxiliary, flow.amax(1))
    assert not torch.allclose(pseudo.confidence, pseudo.auxiliary, atol=0.01)
    agree = aligned.argmax(1) == flow.argmax(1)
    assert agree.unique().tolist() == [False, True]
    assert pseudo.trusted.tolist() == agree.tolist()
    disputed = torch.minimum(aligned.amax(1), flow.amax(1)) if disagree == "min" else torch.zeros(len(agree))
    torch.testing.assert_close(pseudo.weight, torch.where(agree, 1.0, disputed))


def test_normatch_multiplies_its_weights_by_the_adaptive_ones() -> None:
    def made(adaptive: bool) -> Method:
        torch.manual_seed(0)
        choices = {"pseudo_label": "onehot", "auxiliary_pseudo_labels": True, "means": "normal"}
        return make_method("normatch", adaptive=adaptive, **choices).eval()

    batch, adaptive, weigh = make_batch(made(False)), made(True), AdaptiveWeights(3)
    assert isinstance(adaptive.adaptive, AdaptiveWeights)
    assert torch.equal(adaptive.adaptive.mean, weigh.mean), "that of three classes"
    for module in (weigh, adaptive.adaptive):
        module.mean.fill_(0.9)
        module.variance.fill_(0.5)
    plain, adapted = made(False)(batch), adaptive(batch)
    torch.testing.assert_close(adapted.pseudo.weight, plain.pseudo.weight * weigh(plain.pseudo.confidence))
    assert (adapted.pseudo.weight < plain.pseudo.weight).all()
    assert adapted.losses["unlabelled"] < plain.losses["unlabelled"]
    assert adapted.losses["auxiliary_pseudo"] == plain.losses["auxiliary_pseudo"], "by consensus alone"
    assert torch.equal(adapted.pseudo.trusted, plain.pseudo.trusted)
