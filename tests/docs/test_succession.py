"""A fresh network that is told what another is surest of, as the search for a recipe of minutes tried it."""

from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from normatch.augment import AugmentConfig
from normatch.training import train
from tests.conftest import make_batch, make_method
from tests.docs.scripts import brief, load_script, noise, put_registries_back


@pytest.fixture
def succession(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with its methods registered for the time of a test."""
    module = load_script("succession")
    put_registries_back(monkeypatch)
    module.add_methods()
    return module


@given(st.integers(0, 1000), st.integers(1, 60), st.floats(0, 1))
def test_the_surest_of_each_class_are_kept(seed: int, n: int, share: float) -> None:
    p = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed)).softmax(1)
    label, kept = load_script("succession").surest(p, share)
    assert torch.equal(label, p.argmax(1))
    for k in range(3):
        inside, outside = (p[(label == k) & which].amax(1) for which in (kept, ~kept))
        assert len(inside) == min(round(share * n / 3), int((label == k).sum()))
        assert not len(inside) or not len(outside) or inside.min() >= outside.max()


@pytest.mark.parametrize(
    ("name", "step", "told"),
    [("", 0, True), ("", 39, True), ("", 40, False), ("-early", 14, True), ("-early", 15, False)],
)
def test_what_is_told_is_the_target_at_first(succession: ModuleType, name: str, step: int, told: bool) -> None:
    method: Any = make_method(f"normatch-successor{name}")
    sure_of_the_last = torch.linspace(2, 5, 30)[:, None] * torch.eye(3)[torch.arange(30) % 3]
    succession.Successor.before = lambda: sure_of_the_last.softmax(1)
    for epoch in range(3):
        method.begin_epoch(epoch, lambda: pytest.fail("no features are needed"))
    assert method.sure.sum() == 15
    batch = make_batch(method, step, unlabelled=30)
    with mock.patch.object(method, "losses", wraps=method.losses) as losses:
        method(batch)
    *_, target, weight = losses.call_args.args
    names, sure = torch.eye(3)[batch.positions % 3], method.sure
    assert torch.equal(target[sure], names[sure]) == told
    assert bool((weight[sure] == 1).all()) == told
    assert not torch.equal(target[~sure], names[~sure])


def test_a_predecessor_is_asked_once_and_its_right_answers_are_counted(succession: ModuleType, tmp_path: Path) -> None:
    corpus = noise()
    train(brief("normatch", 2), tmp_path / "first", corpus=corpus)
    succession.Successor.before = predecessor = succession.Predecessor(tmp_path / "first", corpus.train)
    lines = list(train(brief("normatch-successor", 3), tmp_path / "second", corpus=corpus).metrics())
    assert all(line["loss"] > 0 for line in lines if "loss" in line)
    right, of_the_surest = predecessor.facts["told, right, and of the surest"]
    answers = predecessor().argmax(1)
    assert predecessor.facts["told by"] == "first"
    assert right == pytest.approx((answers == torch.from_numpy(corpus.train.labels)).double().mean().item())
    assert 0 <= of_the_surest <= 1


@pytest.mark.parametrize("flip", [True, False])
def test_mirror_images_are_asked_about_where_they_were_learned_from(
    succession: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flip: bool
) -> None:
    corpus, config = noise(), brief("normatch", 2)
    train(config.replace(augment=AugmentConfig(flip=flip)), tmp_path / "first", corpus=corpus)
    asked: list[torch.Tensor] = []

    def answer(model: object, x: torch.Tensor) -> torch.Tensor:
        asked.append(x)
        return torch.zeros(len(x), 10)

    monkeypatch.setattr(succession, "logits", answer)
    succession.Predecessor(tmp_path / "first", corpus.train)()
    images = torch.from_numpy(np.asarray(corpus.train.inputs)).permute(0, 3, 1, 2)
    expected = [images, images.flip(3)] if flip else [images]
    assert len(asked) == len(expected)
    assert all(map(torch.equal, asked, expected))
