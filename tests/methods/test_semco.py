"""SemCo: vectors of class names, their groups, and the losses of both heads against NumPy."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.cluster import DBSCAN

from normatch.errors import UserError
from normatch.methods.parts.class_vectors import SHIPPED, class_vectors, groups_of
from normatch.methods.semco import SemCoSettings
from tests.conftest import make_batch, make_method

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLOTHES = ("t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
DIGITS = tuple(map(str, range(10)))
MINI = ("n01532829", "n02105505", "n02457408", "n13133613")


def table() -> dict[str, Any]:
    with np.load(SHIPPED) as file:
        return dict(zip(file["words"].tolist(), file["vectors"].astype(np.float64), strict=True))


def test_a_name_of_several_words_is_their_mean() -> None:
    words = table()
    names = ("maple_tree", "Three-toed sloth", "t-shirt/top", "7", "n02105505")
    parts = (("maple", "tree"), ("three", "toed", "sloth"), ("t-shirt", "top"), ("seven",), ("dog",))
    expected = np.array([np.mean([words[word] for word in part], axis=0) for part in parts])
    expected -= expected.mean(0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(class_vectors(names).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("classes", [CIFAR10, DIGITS, CLOTHES, MINI], ids=["cifar10", "digits", "fashion", "mini"])
def test_classes_of_the_data_sets_have_vectors_of_their_own(classes: tuple[str, ...]) -> None:
    vectors = class_vectors(classes)
    assert vectors.dtype == torch.float32
    similarity = vectors @ vectors.T - torch.eye(len(classes))
    assert similarity.max() < 0.8, "no class is another"


def test_your_own_vectors(tmp_path: Path) -> None:
    file = tmp_path / "own.npz"
    np.savez(file, words=np.array(["Left eye", "right"]), vectors=np.array([[1.0, 0, 0], [0, 1, 0]]))
    expected = torch.tensor([[1.0, -1, 0], [-1, 1, 0]]) / 2**0.5
    torch.testing.assert_close(class_vectors(("left eye", "right"), file), expected)
    with pytest.raises(UserError, match=r"class 'cat' has no word vector in .*own\.npz: give --settings\.vectors"):
        class_vectors(("left eye", "cat"), file)
    with pytest.raises(UserError, match="class 'sample 12' has no word vector in the words that normatch ships"):
        class_vectors(("cat", "sample 12"))
    assert SemCoSettings(vectors=str(file)).vectors == file  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"no archive", None, {"words": np.array(["a"])}, {"words": 1, "vectors": 2}])
def test_vectors_that_cannot_be_read(tmp_path: Path, content: Any) -> None:
    file = tmp_path / "own.npz"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        np.savez(file, **content)
    with pytest.raises(UserError, match=r"own\.npz cannot be read \(.*\): give an \.npz with arrays words"):
        class_vectors(("a", "b"), file)


@pytest.mark.parametrize("distance", [0.2, 0.5, 0.9])
def test_groups_are_the_clusters_of_dbscan(distance: float) -> None:
    vectors = class_vectors(DIGITS)
    expected = DBSCAN(eps=distance, min_samples=1, metric="cosine").fit(vectors.numpy()).labels_
    membership = groups_of(vectors, distance)
    assert membership.argmax(1).tolist() == expected.tolist()
    assert membership.sum(1).tolist() == [1] * 10


def test_both_heads_learn_as_in_the_paper() -> None:
    torch.manual_seed(0)
    method: Any = make_method("semco", threshold=0.374, group_distance=1.2).eval()
    assert method.membership.shape == (3, 2), "bird; cat and dog"
    batch = make_batch(method)
    v, member = method.vectors.double().numpy(), method.membership.numpy()

    def semantic(images: torch.Tensor) -> Any:
        first, _, second = method.semantic.layers
        assert first.out_features == 2048
        f = second(first(method.model.features(images)).relu()).detach().double().numpy()
        return f / np.linalg.norm(f, axis=1, keepdims=True)

    def unit(x: Any) -> Any:
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    weak, strong = batch.unlabelled
    p, p_strong = (method.model(x).softmax(1).detach().double().numpy() for x in batch.unlabelled)
    similarity = semantic(weak) @ v.T
    of_groups = np.stack([similarity[:, column > 0].mean(1) for column in member.T], axis=1)
    least = float(np.median(of_groups.max(1)))
    method.settings = dataclasses.replace(method.settings, semantic_threshold=least)
    losses = method(batch).losses
    used_s, used = of_groups.max(1) >= least, p.max(1) >= 0.374
    assert 0 < used_s.sum() < 14
    assert 0 < used.sum() < 14
    share = softmax(similarity, 1) * member.T[of_groups.argmax(1)]
    share /= share.sum(1, keepdims=True)
    label_s, e = share.argmax(1), unit(share @ v)
    f = semantic(strong)
    own = (used_s * (1 - (f * e).sum(1))).mean()
    others = (used * (1 - (f * v[p.argmax(1)]).sum(1))).mean()
    assert losses["semantic_unlabelled"].item() == pytest.approx(3 * (own + others), rel=1e-4)
    expected = (used_s * -np.log(p_strong[np.arange(14), label_s])).mean()
    assert losses["co_training"].item() == pytest.approx(expected, rel=1e-4)
    expected = (1 - (semantic(batch.labelled[0]) * v[batch.labels]).sum(1)).mean()
    assert losses["semantic"].item() == pytest.approx(3 * expected, rel=1e-4)
