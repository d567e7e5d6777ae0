"""Microseconds of the flow classifier in a captured graph on a GPU: plain modules compiled, and fused kernels.

    python benchmarks/flow.py

Forward is ``evaluate`` under no_grad; with backward, the loss of labels plus the mean of -log p(z).
"""

import statistics
import sys
from collections.abc import Callable

import torch
from torch import nn

from normatch.flow import NormalizingFlowClassifier
from normatch.training.runtime import capture

CASES = [(512, 128, 10), (512, 512, 100)]


def captured(action: Callable[[], object], repeats: int = 50, inner: int = 20) -> float:
    """The median of microseconds of one replay, over repeats of ``inner`` replays each."""
    for _ in range(3):
        action()
    graph = capture(action)
    times: list[float] = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(inner):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / inner)
    return statistics.median(times)


def measure(rows: int, dim: int, classes: int, plain: bool) -> tuple[float, float]:
    """Microseconds of the forward pass alone, and of forward and backward."""
    torch.compiler.reset()
    flow = NormalizingFlowClassifier(dim, classes, generator=torch.Generator().manual_seed(0)).cuda()
    flow.plain = plain
    z = torch.randn(rows, dim, device="cuda")
    labels = torch.arange(rows, device="cuda") % classes

    def loss() -> torch.Tensor:
        logits, log_prob = flow.evaluate(z)
        return nn.functional.cross_entropy(logits, labels) - log_prob.mean()

    compiled_evaluate = torch.compile(flow.evaluate, fullgraph=True)
    compiled_loss = torch.compile(loss, fullgraph=True)

    def forward() -> None:
        with torch.no_grad():
            compiled_evaluate(z)

    def both() -> None:
        flow.zero_grad()
        compiled_loss().backward()

    return captured(forward), captured(both)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("benchmarks/flow.py measures a GPU, and torch sees none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'rows':>5} {'dim':>5} {'classes':>7} {'':>6} {'forward':>9} {'and backward':>13}   (µs)")
    for rows, dim, classes in CASES:
        for name, plain in (("plain", True), ("fused", False)):
            forward, both = measure(rows, dim, classes, plain)
            print(f"{rows:5} {dim:5} {classes:7} {name:>6} {forward:9.1f} {both:13.1f}")


if __name__ == "__main__":
    main()
