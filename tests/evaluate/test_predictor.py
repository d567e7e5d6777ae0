"""The predictor gives what the model gives, whatever the batches and the kind of input."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from normatch.errors import UserError
from normatch.evaluate.predictor import Prediction, Predictor
from normatch.nets.model import HeadSpec, Model, ModelSpec

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 8, 8, 1), dtype=np.uint8)
CLASSES = ("a", "b", "c")


def predictor(shape: tuple[int, ...] = (1, 8, 8), *, flow: bool = True) -> Predictor:
    torch.manual_seed(0)
    auxiliary = (HeadSpec("nfc", layers=2, hidden=8, means="normal"),) if flow else ()
    backbone = "small-wide" if len(shape) == 3 else "mlp"
    n = shape[0]
    return Predictor(Model(ModelSpec(backbone, shape, CLASSES, (100.0,) * n, (50.0,) * n, auxiliary=auxiliary)))


@pytest.mark.parametrize("batch", [1, 7, 23, 256])
def test_batches_change_nothing(batch: int) -> None:
    model = predictor()
    with torch.no_grad():
        p, flow_p, density = model.model.outputs(torch.from_numpy(IMAGES).permute(0, 3, 1, 2))
        z = model.model.features(torch.from_numpy(IMAGES).permute(0, 3, 1, 2))
    np.testing.assert_allclose(model.predict_proba(IMAGES, batch), p, atol=1e-6)
    np.testing.assert_allclose(model.features(IMAGES, batch), z, atol=1e-5)
    assert flow_p is not None
    assert density is not None
    rows = model.label(IMAGES, batch)
    assert [row.item for row in rows] == list(range(23))
    assert [row.label for row in rows] == [CLASSES[k] for k in p.argmax(1)] == model.predict(IMAGES, batch)
    assert [row.flow_label for row in rows] == [CLASSES[k] for k in flow_p.argmax(1)]
    np.testing.assert_allclose([row.probability for row in rows], p.amax(1), atol=1e-6)
    np.testing.assert_allclose([row.flow_probability for row in rows], flow_p.amax(1), atol=1e-5)  # type: ignore[arg-type]
    np.testing.assert_allclose([row.flow_log_density for row in rows], density, rtol=1e-5)  # type: ignore[arg-type]
    assert [row.agree for row in rows] == (p.argmax(1) == flow_p.argmax(1)).tolist()


def test_a_flow_that_has_not_learnt_names_no_class() -> None:
    """All its classes are equally likely, the first no more than the others."""
    spec = ModelSpec("mlp", (5,), CLASSES, (0.0,) * 5, (1.0,) * 5, auxiliary=(HeadSpec("nfc", layers=2, hidden=8),))
    torch.manual_seed(0)
    rows = Predictor(Model(spec)).label(np.random.default_rng(0).normal(size=(30, 5)))
    assert CLASSES[0] in {row.label for row in rows}
    assert {(row.flow_label, row.agree) for row in rows} == {(None, False)}
    assert [row.flow_probability for row in rows] == pytest.approx([1 / 3] * 30)


def test_files_arrays_and_read_only_arrays_are_alike(tmp_path: Path) -> None:
    model = predictor()
    paths = [tmp_path / f"{i}.png" for i in range(23)]
    for path, image in zip(paths, IMAGES, strict=True):
        Image.fromarray(image[..., 0]).save(path)
    expected = model.predict_proba(IMAGES)
    np.testing.assert_array_equal(model.predict_proba(paths), expected)
    np.testing.assert_array_equal(model.predict_proba(str(paths[3]))[0].argmax(), expected[3].argmax())
    np.testing.assert_array_equal(model.predict_proba(IMAGES[..., 0]), expected)
    frozen = IMAGES.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(model.predict_proba(frozen), expected)
    paths[5].write_text("<html>")
    assert [row.item for row in model.label(paths, 4, on_bad="skip")] == [str(p) for p in paths if p != paths[5]]


def test_without_a_flow_there_is_one_opinion() -> None:
    (row,) = predictor(flow=False).label(IMAGES[:1])
    assert row == Prediction(0, row.label, row.probability)
    assert row[3:] == (None,) * 4


def test_nothing_is_predicted_of_nothing() -> None:
    for model, empty in ((predictor(), IMAGES[:0]), (predictor((5,)), np.zeros((0, 5)))):
        assert model.predict_proba(empty).shape == (0, 3)
        assert model.label(empty) == []
        assert model.predict([]) == [] if model.model.spec.shape == (1, 8, 8) else True


def test_vectors() -> None:
    model = predictor((5,))
    features = np.random.default_rng(0).normal(100, 50, (9, 5))
    assert len(model.label(features, 4)) == 9
    np.testing.assert_array_equal(
        model.predict_proba(features.astype(np.float32)).argmax(1), model.predict_proba(features).argmax(1)
    )


def test_wrong_input_is_named() -> None:
    with pytest.raises(UserError, match="batch is 0: give a whole number of at least 1"):
        predictor().predict_proba(IMAGES, 0)
    with pytest.raises(UserError, match=r"images are uint8 of shape \(23, 4, 8, 1\)"):
        predictor().predict(IMAGES[:, :4])
    with pytest.raises(UserError, match=r"takes feature vectors of length 5, not image files"):
        predictor((5,)).predict(["a.png"])


def test_the_flow_may_be_the_head() -> None:
    flow = HeadSpec("nfc", layers=2, hidden=8, means="normal")
    spec = ModelSpec("mlp", (5,), CLASSES, (0.0,) * 5, (1.0,) * 5, head=flow)
    rows = Predictor(Model(spec)).label(np.random.default_rng(0).normal(size=(6, 5)))
    assert {row[3:6] for row in rows} == {(None, None, None)}
    assert len({row.flow_log_density for row in rows} - {None}) == 6


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    """Not as a broken image that might be removed."""
    with pytest.raises(UserError, match="is a folder: give the images in it"):
        predictor().predict(tmp_path)
    with pytest.raises(UserError, match="inputs hold a ndarray: give paths of images, images of Pillow's"):
        predictor().predict([IMAGES[0]])
    with pytest.raises(UserError, match="inputs hold paths and images: give only one"):
        predictor().predict([Image.new("L", (8, 8)), "a.png"])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="inputs hold images, but this model takes feature vectors: give numbers"):
        predictor((4,)).predict(Image.new("L", (8, 8)))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I;16"])
def test_an_image_of_pillow_is_read_as_its_file(tmp_path: Path, mode: str) -> None:
    model, paths = predictor(), []
    for i, size in enumerate(((8, 8), (20, 11), (9, 30))):
        grey = np.random.default_rng(i).integers(0, 256, size, np.uint8)
        image = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(grey).convert(mode)
        assert image.mode == mode
        paths.append(tmp_path / f"{i}.png")
        image.save(paths[-1])
    images = [Image.open(path) for path in paths]
    np.testing.assert_array_equal(model.predict_proba(images), model.predict_proba(paths))
    assert model.predict(images[1]) == model.predict(paths[1])
    assert [row.item for row in model.label(images)] == [0, 1, 2]


def test_an_image_of_pillow_without_a_range_is_an_error() -> None:
    with pytest.raises(UserError, match=r"cannot use an image of mode F and size \(8, 8\): its pixels are"):
        predictor().predict(Image.new("F", (8, 8)))
    with pytest.raises(UserError, match=r"cannot use an image of mode L and size \(0, 8\)"):
        predictor().predict(Image.new("L", (0, 8)))


def test_each_frame_of_a_file_is_an_image(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8), np.uint8)) for i in range(3)]
    frames[0].save(tmp_path / "a.tiff", save_all=True, append_images=frames[1:])
    with Image.open(tmp_path / "a.tiff") as moving:
        found = predictor().predict_proba(ImageSequence.Iterator(moving))
    np.testing.assert_array_equal(found, predictor().predict_proba(frames))
