"""The fused operator against the plain modules: on a GPU where there is one, and in Triton's interpreter anywhere.

``TRITON_INTERPRET=1`` makes this file run the kernels on CPU tensors; its last test does so where Triton is installed.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normatch.flow import NormalizingFlowClassifier
from normatch.kernels import flow as fused
from tests.kernels import DEVICE, INTERPRETED, must_pass_interpreted, needs_gpu, needs_kernels, needs_triton

compiles = pytest.mark.filterwarnings("default")  # torch's own compiler uses what torch deprecates

# Rows, dimensions, classes, layers, hidden units: odd and even halves and layers, padded and whole blocks.
SMALL = [(5, 9, 3, 3, 8), (33, 20, 10, 2, 32), (3, 2, 1, 2, 20), (17, 150, 5, 1, 48)]
LARGE = [(512, 128, 10, 6, 32), (500, 512, 100, 6, 32), (64, 64, 20, 6, 32), (4100, 128, 10, 6, 32)]


def make(dim: int, classes: int, layers: int = 6, hidden: int = 32, scale: float = 0.1) -> NormalizingFlowClassifier:
    """A flow whose every parameter is off its start."""
    generator = torch.Generator().manual_seed(dim)
    flow = NormalizingFlowClassifier(dim, classes, layers, hidden, means="normal", generator=generator)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return flow.to(DEVICE)


def features(n: int, dim: int, size: float = 1.0) -> Tensor:
    return (size * torch.randn(n, dim, generator=torch.Generator().manual_seed(2))).to(DEVICE)


def plain(flow: NormalizingFlowClassifier, z: Tensor) -> tuple[Tensor, Tensor]:
    latent, log_det = flow._transform(z)
    return flow.mixture(latent), log_det


def everything(
    compute: Callable[[NormalizingFlowClassifier, Tensor], tuple[Tensor, Tensor]],
    flow: NormalizingFlowClassifier,
    z: Tensor,
    want_z: bool = True,
) -> dict[str, Tensor]:
    """Both outputs, and the gradients of a loss that weighs each of their numbers differently."""
    z = z.clone().requires_grad_(want_z)
    flow.zero_grad()
    logits, log_det = compute(flow, z)
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(out.shape, generator=generator).to(out.device) for out in (logits, log_det)]
    ((logits * weights[0]).sum() + (log_det * weights[1]).sum()).backward()
    result = {name: p.grad.clone() for name, p in flow.named_parameters() if p.grad is not None}
    assert (z.grad is not None) == want_z
    if z.grad is not None:
        result["z"] = z.grad
    return result | {"logits": logits.detach(), "log_det": log_det.detach()}


def assert_equal(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        tolerance = 1e-5 if name in ("logits", "log_det") else 1e-4
        assert got[name].dtype == tensor.dtype, name
        error = (got[name].float() - tensor.float()).abs().max()
        assert float(error) <= tolerance * float(tensor.abs().max()) + 1e-6, f"{name}: {float(error)}"


@needs_kernels
@pytest.mark.parametrize(("n", "dim", "classes", "layers", "hidden"), SMALL if INTERPRETED else SMALL + LARGE)
def test_equals_the_plain_modules(n: int, dim: int, classes: int, layers: int, hidden: int) -> None:
    flow, z = make(dim, classes, layers, hidden), features(n, dim)
    assert_equal(everything(fused.log_joint, flow, z), everything(plain, flow, z))


@needs_kernels
def test_features_without_a_gradient_get_none_and_change_no_bit() -> None:
    flow, z = make(12, 3, 2), features(18, 12)
    first, again = (everything(fused.log_joint, flow, z, want_z) for want_z in (False, True))
    assert set(again) - set(first) == {"z"}
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name]), name


@needs_kernels
def test_other_precisions_and_layouts_of_features() -> None:
    flow, z = make(10, 3, 2), features(7, 10)
    for other in (z.half(), z.t().contiguous().t(), z[:, None].expand(-1, 2, -1)[:, 1], z.double()):
        assert_equal(everything(fused.log_joint, flow, other), everything(plain, flow, other))


@needs_kernels
def test_without_gradients() -> None:
    flow, z = make(10, 3, 5), features(7, 10)
    with torch.no_grad():
        logits, log_det = fused.log_joint(flow, z)
    kept, kept_log_det = fused.log_joint(flow, z)
    assert torch.equal(logits, kept)
    assert torch.equal(log_det, kept_log_det)
    assert not logits.requires_grad
    assert kept.requires_grad
    empty, empty_log_det = fused.log_joint(flow, z[:0])
    assert empty.shape == (0, 3)
    assert empty_log_det.shape == (0,)
    empty.sum().backward()
    assert not any(p.grad.any() for p in flow.parameters() if p.grad is not None)


@needs_kernels
def test_one_output_alone() -> None:
    flow, z = make(10, 3, 2), features(7, 10)
    for index in (0, 1):
        grads = []
        for compute in (fused.log_joint, plain):
            flow.zero_grad()
            compute(flow, z)[index].sum().backward()
            grads.append({n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in flow.named_parameters()})
        assert_equal(*grads)


@needs_kernels
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e4, 1e6])
def test_features_of_any_size_stay_finite(size: float) -> None:
    flow, z = make(12, 4, 3), features(16, 12, size)
    result = everything(fused.log_joint, flow, z)
    for name, tensor in result.items():
        assert tensor.isfinite().all(), name
    if size < 1:
        assert_equal(result, everything(plain, flow, z))


@needs_kernels
def test_rows_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    flow, z = make(6, 3, 2), features(39, 6)
    whole = everything(fused.log_joint, flow, z)
    monkeypatch.setattr(fused, "SUMMED_ROWS", 16)
    assert_equal(everything(fused.log_joint, flow, z), whole)


@needs_kernels
@compiles
def test_compiles_as_one_graph() -> None:
    flow, z = make(10, 3, 2), features(7, 10)
    torch.compiler.reset()
    compiled = torch.compile(fused.log_joint, fullgraph=True, backend="aot_eager")
    expected = everything(fused.log_joint, flow, z)
    for name, tensor in everything(compiled, flow, z).items():
        assert torch.equal(tensor, expected[name]), name


@needs_kernels
def test_the_operator_keeps_torch_s_rules() -> None:
    flow, z = make(6, 3, 2), features(5, 6).requires_grad_()
    arguments = (z, fused.flatten(flow).detach().requires_grad_(), 3, 2, 32, True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(fused._forward, arguments, test_utils=tests)


def test_a_plain_flow_uses_the_modules_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_HAS_TRITON", True)
    on_a_gpu: Any = SimpleNamespace(is_cuda=True)
    flow, other = (NormalizingFlowClassifier(10, 3) for _ in range(2))
    flow.plain = True
    assert not fused.applies(flow, on_a_gpu)
    assert fused.applies(other, on_a_gpu), "one flow's choice is no other's"


@needs_triton
@needs_gpu
@pytest.mark.parametrize(("dim", "classes"), [(128, 10), (512, 100)])
def test_the_classifier_uses_it_on_a_gpu(dim: int, classes: int) -> None:
    flow, z = make(dim, classes), features(512, dim)
    assert fused.applies(flow, z)
    assert not fused.applies(flow.cpu(), z.cpu())
    flow.cuda()
    got = flow.evaluate(z)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for inside, outside in zip(flow.evaluate(z), got, strict=True):
            assert torch.equal(inside, outside)
    flow.plain = True
    assert not fused.applies(flow, z)
    for ours, theirs in zip(got, flow.evaluate(z), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@needs_triton
@needs_gpu
@compiles
@pytest.mark.parametrize(("dim", "classes"), [(128, 10), (512, 100)])
def test_a_captured_graph_learns_the_same(dim: int, classes: int) -> None:
    flow, z = make(dim, classes), features(512, dim)
    labels = torch.arange(512, device=z.device) % classes
    evaluate = torch.compile(flow.evaluate, fullgraph=True)

    def step() -> Tensor:
        flow.zero_grad(set_to_none=False)
        logits, log_prob = evaluate(z)
        loss = nn.functional.cross_entropy(logits, labels) - log_prob.mean()
        loss.backward()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    z.copy_(features(512, dim, 0.5))
    for _ in range(2):
        graph.replay()
    captured = {name: p.grad.clone() for name, p in flow.named_parameters() if p.grad is not None}
    captured["loss"] = loss.detach().clone()
    flow.zero_grad()
    logits, log_det = plain(flow, z)
    expected_loss = nn.functional.cross_entropy(logits, labels) - (logits.logsumexp(-1) + log_det).mean()
    expected_loss.backward()
    expected = {name: p.grad for name, p in flow.named_parameters() if p.grad is not None}
    assert_equal(captured, expected | {"loss": expected_loss.detach()})


@needs_triton
@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's run")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU has run the kernels themselves")
def test_in_the_interpreter() -> None:
    must_pass_interpreted(__file__)
