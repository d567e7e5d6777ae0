"""The predictor gives what the model gives, whatever the batches and the kind of input; tables are whole or absent."""

import csv
import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image, ImageSequence
from scipy.special import softmax

import normatch
from normatch.cli import main
from normatch.config import Config
from normatch.data.manifest import list_manifest
from normatch.errors import UserError
from normatch.evaluate import predict
from normatch.evaluate.predict import Prediction, Predictor, load, table
from normatch.nets.model import HeadSpec, Model, ModelSpec, save_model
from normatch.training import train

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 8, 8, 1), dtype=np.uint8)
CLASSES = ("a", "b", "c")
FLOW = HeadSpec("nfc", layers=2, hidden=8, means="normal")


def predictor(shape: tuple[int, ...] = (1, 8, 8), *auxiliary: HeadSpec, head: HeadSpec | None = None) -> Predictor:
    torch.manual_seed(0)
    backbone, n = "small-wide" if len(shape) == 3 else "mlp", shape[0]
    spec = ModelSpec(backbone, shape, CLASSES, (100.0,) * n, (50.0,) * n, auxiliary=auxiliary)
    return Predictor(Model(spec if head is None else replace(spec, head=head)))


@pytest.mark.parametrize("batch", [1, 7, 256])
def test_batches_change_nothing(batch: int) -> None:
    model, images = predictor((1, 8, 8), FLOW), torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    with torch.no_grad():
        p, flow_p, density = model.model.outputs(images)
        z = model.model.features(images)
    np.testing.assert_allclose(model.predict_proba(IMAGES, batch), p, atol=1e-6)
    np.testing.assert_allclose(model.features(IMAGES, batch), z, atol=1e-5)
    assert flow_p is not None
    assert density is not None
    rows = model.label(IMAGES, batch)
    assert [row.sample for row in rows] == list(range(23))
    assert [row.label for row in rows] == [CLASSES[k] for k in p.argmax(1)] == model.predict(IMAGES, batch)
    assert [row.flow_label for row in rows] == [CLASSES[k] for k in flow_p.argmax(1)]
    np.testing.assert_allclose([row.probability for row in rows], p.amax(1), atol=1e-6)
    np.testing.assert_allclose([row.flow_probability for row in rows], flow_p.amax(1), atol=1e-5)  # type: ignore[arg-type]
    np.testing.assert_allclose([row.flow_log_density for row in rows], density, rtol=1e-5)  # type: ignore[arg-type]
    assert [row.agree for row in rows] == (p.argmax(1) == flow_p.argmax(1)).tolist()


def test_what_a_flow_says_depends_on_where_it_is() -> None:
    x = np.random.default_rng(0).normal(100, 50, size=(30, 5))
    untrained = predictor((5,), replace(FLOW, means="zero")).label(x)
    assert CLASSES[0] in {row.label for row in untrained}
    assert {(row.flow_label, row.agree) for row in untrained} == {(None, False)}, "all classes are equally probable"
    assert [row.flow_probability for row in untrained] == pytest.approx([1 / 3] * 30)
    assert {row[3:] for row in predictor((5,)).label(x)} == {(None,) * 4}
    as_head = predictor((5,), head=FLOW).label(x)
    assert {row[3:6] for row in as_head} == {(None,) * 3}
    assert len({row.flow_log_density for row in as_head} - {None}) == 30


def test_probabilities_are_calibrated_and_in_float32(tmp_path: Path) -> None:
    model = predictor().model
    expected = model(torch.from_numpy(IMAGES).permute(0, 3, 1, 2)).detach().numpy()
    save_model(model, tmp_path, temperature=2.5)
    np.testing.assert_allclose(load(tmp_path).predict_proba(IMAGES), softmax(expected / 2.5, axis=1), atol=1e-6)
    rows = load(tmp_path).label(IMAGES)
    np.testing.assert_allclose([row.probability for row in rows], softmax(expected / 2.5, axis=1).max(1), atol=1e-6)
    raw = load(tmp_path, calibrated=False).predict_proba(IMAGES)
    np.testing.assert_allclose(raw, softmax(expected, axis=1), atol=1e-6)
    model.head.bfloat16()
    z = torch.ones(1, model.backbone.features, dtype=torch.bfloat16)
    assert (model.head(z).dtype, model.probabilities(z).dtype) == (torch.bfloat16, torch.float32)


def test_files_arrays_and_images_of_pillow_are_alike(tmp_path: Path) -> None:
    model = predictor()
    paths = [tmp_path / f"{i}.png" for i in range(23)]
    for path, image in zip(paths, IMAGES, strict=True):
        Image.fromarray(image[..., 0]).save(path)
    frozen = IMAGES.copy()
    frozen.flags.writeable = False
    expected = model.predict_proba(IMAGES)
    for same in (paths, IMAGES[..., 0], frozen, [Image.open(path) for path in paths]):
        np.testing.assert_array_equal(model.predict_proba(same), expected)
    assert model.predict(str(paths[3])) == model.predict(IMAGES[3:4])
    paths[5].write_text("<html>")
    assert [row.sample for row in model.label(paths, 4, on_bad="skip")] == [str(p) for p in paths if p != paths[5]]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "1", "I;16"])
def test_an_image_of_pillow_is_read_as_its_file(tmp_path: Path, mode: str) -> None:
    model, paths = predictor(), []
    for i, size in enumerate(((8, 8), (20, 11), (9, 30))):
        grey = np.random.default_rng(i).integers(0, 256, size, np.uint8)
        image = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(grey).convert(mode)
        paths.append(tmp_path / f"{i}.png")
        image.save(paths[-1])
    images = [Image.open(path) for path in paths]
    np.testing.assert_array_equal(model.predict_proba(images), model.predict_proba(paths))
    images[0].save(tmp_path / "a.tiff", save_all=True, append_images=images[1:])
    with Image.open(tmp_path / "a.tiff") as frames:  # the same object again and again
        np.testing.assert_array_equal(model.predict_proba(ImageSequence.Iterator(frames)), model.predict_proba(images))


def test_nothing_is_predicted_of_nothing(run: str, here: Path) -> None:
    for model, empty in ((predictor(), IMAGES[:0]), (predictor((5,)), np.zeros((0, 5)))):
        assert model.predict_proba(empty).shape == (0, 3)
        assert model.label(empty) == []
    assert predictor().predict([]) == []
    np.save("none.npy", IMAGES[:0])
    for suffix in ("csv", "parquet"):
        assert main(["predict", run, "none.npy", "--out", f"none.{suffix}"]) == 0
    assert Path("none.csv").read_text().startswith("sample,label,")
    assert pyarrow.parquet.read_table("none.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("shape", "inputs", "says"),
    [
        ((1, 8, 8), IMAGES[:, :4], r"images are uint8 of shape \(23, 4, 8, 1\)"),
        ((5,), ["a.png"], "takes feature vectors of length 5, not image files"),
        ((1, 8, 8), Path(), r"inputs hold the folder \.: give image files"),
        ((1, 8, 8), [IMAGES[0]], "inputs hold a ndarray: give image files, images of Pillow's"),
        ((1, 8, 8), [Image.new("L", (8, 8)), "a.png"], "inputs hold paths and images: give only one"),
        ((4,), Image.new("L", (8, 8)), r"inputs hold a Image: give an array of numbers \(N, 4\)"),
        ((1, 8, 8), Image.new("F", (8, 8)), r"cannot use an image of mode F and size \(8, 8\): its pixels are"),
        ((1, 8, 8), Image.new("L", (0, 8)), r"cannot use an image of mode L and size \(0, 8\)"),
    ],
)
def test_wrong_input_is_named(shape: tuple[int, ...], inputs: predict.Inputs, says: str) -> None:
    with pytest.raises(UserError, match=says):
        predictor(shape).predict(inputs)


# Tables, on the command line


@pytest.fixture(scope="module")
def run(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(train(tiny_config.replace(steps=2), tmp_path_factory.mktemp("table") / "run").path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in: images and arrays, right and wrong."""
    monkeypatch.chdir(tmp_path)
    Path("pictures").mkdir()
    for i, image in enumerate(IMAGES[:11]):
        Image.fromarray(image[..., 0]).save(f"pictures/{i:02d}.png")
    np.save("images.npy", IMAGES[:11])
    np.save("wide.npy", np.zeros((3, 8, 9), np.uint8))
    np.save("features.npy", np.random.default_rng(0).normal(size=(8, 5)))
    return tmp_path


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a command that fails with 2 and leaves the folder as it was."""
    before = {path: path.lstat().st_mtime_ns for path in Path().rglob("*")}
    capsys.readouterr()
    assert main(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert {path: path.lstat().st_mtime_ns for path in Path().rglob("*")} == before
    return said.err


def test_csv_and_parquet_say_the_same(run: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "ROW_GROUP", 4)  # so that there are several
    for inputs, column in (("pictures", "path"), ("images.npy", "sample")):
        for suffix in ("csv", "parquet"):
            assert main(["predict", run, inputs, "--out", f"{column}.{suffix}", "--batch", "3"]) == 0
        rows, stored = read(f"{column}.csv"), pyarrow.parquet.read_table(f"{column}.parquet")
        assert stored.column_names == list(rows[0]) == [column, *Prediction._fields[1:]]
        assert pyarrow.parquet.ParquetFile(f"{column}.parquet").num_row_groups > 1
        for row, other in zip(rows, stored.to_pylist(), strict=True):
            assert row.pop("agree") == str(other.pop("agree")).lower()
            for name, value in row.items():
                if isinstance(other[name], float):
                    assert float(value) == pytest.approx(other[name], abs=1e-4)
                else:
                    assert value == ("" if other[name] is None else str(other[name]))
        expected = normatch.load(run).label(IMAGES[:11])
        assert [row["label"] for row in rows] == [row.label for row in expected]
        assert [float(row["probability"]) for row in rows] == pytest.approx([r.probability for r in expected], abs=1e-5)


def test_a_cell_is_text_and_no_formula(here: Path) -> None:
    """Of any content: no class, bytes that are no text, what a spreadsheet would compute; numbers stay numbers."""
    names = ["=1+2.png", "+a.png", "-a.png", "@a.png", "\ta.png", "'=a.png", "-1", "a=b.png"]
    for name in ("x.csv", "x.parquet"):
        with table(Path(name), ("path", "label", "probability", "flow_label", "agree", "flow_log_density")) as write:
            write([(name, "\udce9t\udce9", 0.75, None, False, -3.0) for name in names])
    rows, stored = read("x.csv"), pyarrow.parquet.read_table("x.parquet").to_pylist()
    assert [row.pop("path") for row in stored] == names
    assert stored[0] == {
        "label": r"\udce9t\udce9",
        "probability": 0.75,
        "flow_label": None,
        "agree": False,
        "flow_log_density": -3.0,
    }
    assert list(rows[0].values()) == ["'=1+2.png", r"\udce9t\udce9", "0.750000", "", "false", "-3.000000"]
    assert [row["path"] for row in rows] == [*(f"'{name}" for name in names[:6]), *names[6:]]
    for name in names:
        Path(name).write_bytes(b"")
    assert [str(path) for path in list_manifest(Path("x.csv")).paths] == names, "a manifest reads them back"


def test_a_terminal_sees_progress_and_no_escape_sequences(
    run: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    for name, stream in streams.items():
        stream.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setenv("TERM", "xterm")
    Path("pictures/00.png").rename("pictures/\x1b[2J.png")
    assert main(["predict", run, "pictures", "--batch", "2"]) == 0
    assert "11/11" in streams["stderr"].getvalue()
    assert "\x1b" not in streams["stdout"].getvalue()
    assert r"pictures/\x1b[2J.png" in streams["stdout"].getvalue()


@pytest.mark.parametrize(("head", "columns"), [(None, ""), (FLOW, ",flow_log_density")])
def test_a_model_without_an_auxiliary_flow_has_fewer_columns(
    head: HeadSpec | None, columns: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = predictor((5,), head=head)
    save_model(model.model, here, temperature=1.5)
    assert main(["predict", ".", "features.npy"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == f"sample,label,probability{columns}"
    assert len(said.out.splitlines()) == 9
    assert said.err == "8 predictions calibrated by temperature 1.50: standard output\n"
    assert main(["predict", ".", "features.npy", "--no-calibrated"]) == 0
    raw = capsys.readouterr()
    assert raw.err == "8 predictions: standard output\n"
    expected = model.predict_proba(np.load("features.npy")).max(1)
    found = [float(row["probability"]) for row in csv.DictReader(raw.out.splitlines())]
    assert found == pytest.approx(expected, abs=1e-5)


def test_paths_on_standard_input(
    run: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("pictures/03.png\n\npictures/01.png\n"))
    capsys.readouterr()
    assert main(["predict", run, "-"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["pictures/03.png", "pictures/01.png"]


def test_a_table_that_exists_is_replaced_only_by_force(
    run: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out.csv").write_text("mine")
    said = error_of(capsys, "predict", run, "images.npy", "--out", "out.csv")
    assert "out.csv exists already: choose another name, or replace it with --force" in said
    error_of(capsys, "predict", run, "wide.npy", "--out", "out.csv", "--force")
    assert Path("out.csv").read_text() == "mine", "an error on the way leaves the old one too"
    assert main(["predict", run, "images.npy", "--out", "out.csv", "--force"]) == 0
    assert len(read("out.csv")) == 11


def test_what_is_not_predicted_is_listed(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pictures/1.HEIC").write_text("")
    Path("pictures/moved.png").symlink_to("nowhere.png")
    Path("pictures/more").symlink_to(here / "pictures")
    Path("pictures/10.png").write_text("<html>")
    argv = ["predict", run, "pictures", "--batch", "2", "--out", "out.csv"]
    assert "cannot read image pictures/10.png" in error_of(capsys, *argv)
    assert main([*argv, "--on-bad-image", "skip"]) == 0
    said = capsys.readouterr().out
    for line in (
        "10 predictions: out.csv\n",
        "2 files are ignored (.png 1, .heic 1), such as pictures/moved.png\n",
        "\n1 unreadable image skipped:\npictures/10.png: not an image of a known kind",
    ):
        assert line in said
    assert len(read("out.csv")) == 10


def test_names_that_are_not_text_do_no_harm(run: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        os.rename(b"pictures/00.png", b"pictures/00-\xe9.png")
    except OSError:
        pytest.skip("this file system takes only text for names")
    strict = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdout", strict)
    assert main(["predict", run, "pictures"]) == 0
    strict.seek(0)
    assert r"pictures/00-\udce9.png" in [line.split(",")[0] for line in strict.read().splitlines()]


@pytest.mark.parametrize("out", [[], ["--out", "out.csv"]])
def test_wrong_input_is_one_line(out: list[str], run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(capsys, "predict", run, "wide.npy", *out)
    assert "wide.npy: images are uint8 of shape (3, 8, 9)" in said
    said = error_of(capsys, "predict", run, "images.npy", "--batch", "0", *out)
    assert "batch is 0: give a whole number of at least 1" in said


def test_parquet_without_pyarrow(
    run: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'normatch[parquet]'" in error_of(capsys, "predict", run, "images.npy", "--out", "out.parquet")
