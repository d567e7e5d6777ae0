"""Every method, through the same questions."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from normatch.methods import Outcome, methods
from normatch.methods.parts.groups import OptimConfig
from tests.conftest import make_batch, make_method

NAMES = methods.names()
VARIANTS: list[tuple[str, dict[str, object]]] = [(name, {}) for name in NAMES] + [
    ("fixmatch", {"alignment": True, "pseudo_label": "soft", "passes": "shared"}),
    ("normatch", {"disagree": "drop", "consensus": "mlp", "accumulate_mixture": True}),
    ("normatch", {"consensus": "nfc+nfc", "auxiliary_pseudo_labels": True, "passes": "shared"}),
    ("normatch", {"head": "nfc", "flow_dropout": "first-epoch", "means": "normal"}),
    ("normatch", {"stop_gradient": False, "alignment": False, "pseudo_label": "onehot"}),
    ("normatch", {"accumulate_mixture": True, "flow_ramp": 0, "num_weight": 0.0}),
    ("normatch", {"adaptive": True, "decide_after": 0.5, "passes": "shared"}),
    ("vat", {"entropy": 1.0, "iterations": 2}),
    ("uda", {"annealing": "log", "consensus": "nfc"}),
    ("pseudo-label", {"consensus": "nfc", "alignment": True}),
    ("mixmatch", {"consensus": "nfc"}),
    ("remixmatch", {"alignment": False, "rotation_weight": 0.0}),
    ("remixmatch", {"consensus": "nfc"}),
    ("simple", {"consensus": "nfc", "passes": "shared"}),
    ("plcb", {"consensus": "nfc", "alignment": True}),
    ("fixmatch", {"consensus": "nfc"}),
    ("flexmatch", {"consensus": "nfc"}),
    ("freematch", {"consensus": "nfc", "fairness": 0.0}),
    ("softmatch", {"consensus": "nfc", "uniform": False}),
    ("dash", {"consensus": "nfc+nfc", "warm_up": 0.0}),
    ("adsh", {"consensus": "mlp", "passes": "shared"}),
    ("adamatch", {"consensus": "nfc", "passes": "shared"}),
    ("comatch", {"consensus": "nfc", "alignment": False, "memory": 16}),
    ("simmatch", {"consensus": "nfc", "bank": "teacher"}),
    ("semco", {"consensus": "nfc", "group_distance": 2.0}),
]
each_variant = pytest.mark.parametrize(("name", "choices"), VARIANTS, ids=lambda v: v if isinstance(v, str) else str(v))


@each_variant
def test_a_step(name: str, choices: dict[str, object]) -> None:
    method = make_method(name, **choices).train()
    buffers = dict(method.named_buffers())
    outcome = method(make_batch(method))
    assert isinstance(outcome, Outcome)
    assert outcome.losses
    assert all(loss.shape == () and torch.isfinite(loss) for loss in outcome.losses.values())
    assert all(metric.shape == () for metric in outcome.metrics.values())
    torch.stack(list(outcome.losses.values())).sum().backward()
    assert [n for n, p in method.named_parameters() if p.grad is None] == []
    grouped = [id(p) for group in method.groups(OptimConfig()) for p in group.params]
    assert sorted(grouped) == sorted(id(p) for p in method.parameters()), "each parameter has one optimiser"
    # A captured graph refers to the addresses of buffers: it would never see one that took another's place.
    assert [where for where, buffer in method.named_buffers() if buffer is not buffers.get(where)] == []
    # No checkpoint would keep a tensor that is neither parameter nor buffer.
    stored = [value for module in method.modules() for value in vars(module).values()]
    assert not any(isinstance(value, torch.Tensor) for value in stored)
    if (pseudo := outcome.pseudo) is not None:
        assert method.views.unlabelled
        assert not any(t.requires_grad for t in pseudo if t is not None)
        assert ((pseudo.weight >= 0) & (pseudo.weight <= 1)).all()
        assert pseudo.trusted.dtype == torch.bool


@pytest.mark.parametrize("name", NAMES)
def test_a_step_on_vectors(name: str) -> None:
    method = make_method(name, True).train()
    losses = method(make_batch(method)).losses
    torch.stack(list(losses.values())).sum().backward()
    assert all(torch.isfinite(loss) for loss in losses.values())
    assert [n for n, p in method.named_parameters() if p.grad is None] == []


@each_variant
def test_no_value_is_read_by_the_host(name: str, choices: dict[str, object]) -> None:
    """Tensors without values: an ``.item()``, a branch or a shape that needs one raises."""
    method = make_method(name, **choices).train()
    batch = make_batch(method)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        method(tree_map(lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x, batch))


@pytest.mark.parametrize("name", NAMES)
def test_compiles_without_a_graph_break(name: str) -> None:
    method = make_method(name).train()
    batch = make_batch(method)
    torch._dynamo.reset()
    compiled = torch.compile(method, fullgraph=True, backend="eager")
    state = {k: v.clone() for k, v in method.state_dict().items()}
    torch.manual_seed(0)
    expected = method(batch)
    method.load_state_dict(state)
    torch.manual_seed(0)
    got = compiled(batch)
    for key, loss in expected.losses.items():
        torch.testing.assert_close(got.losses[key], loss)


@each_variant
def test_the_same_state_and_seed_give_the_same_step(name: str, choices: dict[str, object]) -> None:
    first, second = (make_method(name, **choices).train() for _ in range(2))
    first(make_batch(first, step=7))
    second.load_state_dict(first.state_dict())
    losses = []
    for method in (first, second):
        torch.manual_seed(0)
        losses.append({k: v.item() for k, v in method(make_batch(method)).losses.items()})
    assert losses[0] == losses[1]
