"""What inspection finds in a small folder where everything is known."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normatch.cli import main
from normatch.data import sheet as sheets
from normatch.data.inspect import describe, inspect
from normatch.errors import UserError
from tests.data.test_alike import crops, recompressed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cats, dogs, unlabelled and test pictures, with a copy of each kind that there should not be."""
    where = tmp_path_factory.mktemp("inspect") / "pets"
    photos = crops(20, 100)

    def put(image: Image.Image, place: str) -> None:
        (where / place).parent.mkdir(parents=True, exist_ok=True)
        image.save(where / place)

    for i in range(6):
        put(photos[i], f"train/cat/{i}.png")
    for i in range(6, 8):
        put(photos[i].convert("L"), f"train/dog/{i}.png")
    for i in range(8, 12):
        put(photos[i].convert("RGBA"), f"train/unlabeled/{i}.png")
    for i in range(12, 15):
        put(photos[i], f"test/cat/{i}.png")
    put(photos[0], "train/cat/copy.bmp")
    put(photos[1], "train/dog/mislabelled.png")
    put(photos[2], "test/cat/leak.png")
    put(recompressed(photos[3]), "test/dog/near.png")
    put(recompressed(photos[9]), "train/unlabeled/near.png")
    (where / "train/cat/empty.jpg").write_bytes(b"")
    (where / "test/cat/page.jpg").write_text("<html>")
    return where


def members(groups: list[list[dict[str, str]]]) -> list[set[str]]:
    return [{"/".join(Path(member["sample"]).parts[-3:]) for member in group} for group in groups]


def test_what_is_there_and_what_is_wrong(folder: Path) -> None:
    report = inspect(str(folder))
    assert (report["samples"], report["labelled"], report["unlabelled"], report["test"]) == (20, 10, 5, 5)
    assert report["classes"] == [{"name": "cat", "train": 7, "test": 4}, {"name": "dog", "train": 3, "test": 1}]
    assert report["sizes"] == {"smallest": [100, 100], "largest": [100, 100], "median_side": 100.0}
    assert report["modes"] == {"RGB": 14, "RGBA": 4, "L": 2}
    assert report["imbalance"] == 7 / 3
    assert sorted(Path(line.split(": ")[0]).name for line in report["unreadable"]) == ["empty.jpg", "page.jpg"]
    copy, wrong = {"train/cat/0.png", "train/cat/copy.bmp"}, {"train/cat/1.png", "train/dog/mislabelled.png"}
    leak = {"train/cat/2.png", "test/cat/leak.png"}
    near_leak, near = {"train/cat/3.png", "test/dog/near.png"}, {"train/unlabeled/9.png", "train/unlabeled/near.png"}
    assert members(report["duplicates"]) == [copy, wrong, leak]
    assert members(report["label_conflicts"]) == [wrong]
    assert members(report["leaks"]) == [leak]
    assert members(report["near_duplicates"]) == [near_leak, near]
    assert members(report["near_leaks"]) == members(report["near_label_conflicts"]) == [near_leak]
    text = describe(report)
    for part in (
        "20 samples, 10 labelled in 2 classes, 5 unlabelled, 5 test",
        "100×100",
        "empty.jpg: the file is empty",
        "1 × same pixels under two labels",
        "mislabelled.png (dog)",
        "1 × same pixels in train and test",
        "3 × same pixels\n",
        "2 × look alike",
    ):
        assert part in text
    assert text.endswith(f"\nnext: normatch train --data {folder} --on-bad-image skip")


def test_names_cannot_steer_a_terminal_or_break_the_sheet(tmp_path: Path) -> None:
    for i, photo in enumerate(crops(2)):
        (tmp_path / f"c\x1b[2J\n{i}").mkdir()
        photo.save(tmp_path / f"c\x1b[2J\n{i}" / "\x9b31m.png")
        (tmp_path / f"c\x1b[2J\n{i}" / "\x1b]0;.png").write_text("")
    report = inspect(str(tmp_path), sheet=tmp_path / "sheet.png")
    text = describe(report)
    assert set(text) & set(map(chr, [*range(32), *range(127, 160)])) == {"\n"}
    assert r"c\x1b[2J\n0" in text
    assert (tmp_path / "sheet.png").is_file()


def test_nobody_wonders_where_pictures_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = ["train/cat/1.png", "train/dog/1.png", "train/unlabeled/deep/1.png", "test/cat/1.png"]
    for photo, place in zip(crops(7, 40), [*places, "val/cat/1.png", "2.png", "../store/bird/1.png"], strict=True):
        Path("pets", place).parent.mkdir(parents=True, exist_ok=True)
        photo.save(Path("pets", place))
    for name in ("train/cat/a.HEIC", "train/dog/b.heic", "train/unlabeled/deep/c.txt", "train/cat/.DS_Store"):
        Path("pets", name).write_text("")
    Path("pets/.git").mkdir()
    Path("pets/.git/3.png").write_text("")
    for link, target in {
        "train/cat/gone.png": "nowhere.png",
        "train/cat/loop.png": "loop.png",
        "train/bear": "bear",
        "train/bird": "../../store/bird",
        "train/unlabeled/back": "../..",
    }.items():
        Path("pets", link).symlink_to(target)
    report = inspect("pets")
    images = ["2.png", "train/cat/gone.png", "train/cat/loop.png", "val/cat/1.png"]
    others = ["train/bear", "train/cat/a.HEIC", "train/dog/b.heic", "train/unlabeled/deep/c.txt"]
    assert report["ignored"] == [f"pets/{name}" for name in images + others]
    assert {place["name"] for place in report["classes"]} == {"bird", "cat", "dog"}
    assert "! 8 files are ignored (.png 4, .heic 2, no suffix 1, .txt 1), such as pets/2.png\n" in describe(report)
    monkeypatch.chdir("pets")
    assert inspect(".", unlabelled=tmp_path / "pets" / "val")["ignored"][:2] == ["./2.png", "./train/cat/gone.png"]


def test_only_folders_have_ignored_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(f"path,label\n{folder / 'train/cat/0.png'},cat\n")
    (tmp_path / "more").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "more" / "1.png")
    assert inspect(str(tmp_path / "list.csv"))["ignored"] == []
    assert inspect(str(folder))["ignored"] == inspect("digits", unlabelled=tmp_path / "more")["ignored"] == []
    (tmp_path / "more" / "1.heic").write_text("")
    assert inspect("digits", unlabelled=tmp_path / "more")["ignored"] == [str(tmp_path / "more" / "1.heic")]


def test_the_sheet_shows_every_class_and_the_unlabelled(folder: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    inspect(str(folder), sheet=sheet)
    with Image.open(sheet) as image:
        pixels = np.asarray(image)
    # Three rows of a title and tiles of 96 pixels; the first tile of the first row is the first cat.
    assert pixels.shape == (8 + 3 * (26 + 96 + 8), 8 + 8 * (96 + 8), 3)
    with Image.open(folder / "train/cat/0.png") as cat:
        expected = np.asarray(cat.resize((96, 96), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(pixels[34:130, 8:104], expected)
    titles = pixels[8:34, :200]
    assert (titles < 100).any(), "the class's name is drawn"
    # Before any image is read: of many, that takes a while.
    for kind in ("xyz", "psd", "ico"):  # some of which Pillow can read only, or makes small
        with pytest.raises(UserError, match=r"ends in \.png or \.jpg"):
            inspect("no data at all", sheet=tmp_path / f"sheet.{kind}")
    with pytest.raises(UserError, match=r"cannot write .*: .*nowhere is no folder that can be written to"):
        inspect("no data at all", sheet=tmp_path / "nowhere" / "sheet.png")


def test_names_on_the_sheet_are_no_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's own font has no letters but ASCII's: a font of the system, or the name without its accents."""
    pictures = np.zeros((1, 8, 8, 3), np.uint8)
    drawn = {}
    for fonts in (sheets.FONTS, ()):
        monkeypatch.setattr(sheets, "FONTS", fonts)
        for name in ("zäg", "zag", "z中g"):
            sheets.write_sheet(tmp_path / "sheet.png", [(name, pictures)])
            drawn[name, bool(fonts)] = (tmp_path / "sheet.png").read_bytes()
    assert drawn["zäg", False] == drawn["zag", False] != drawn["z中g", False]
    assert drawn["zag", True] == drawn["zag", False], "plain names look the same everywhere"


def test_other_kinds_of_data(tmp_path: Path) -> None:
    report = inspect("digits")
    assert (report["samples"], report["labelled"], report["modes"]) == (1797, 1797, {"L": 1797})
    assert "no unlabelled samples" in report["remarks"][0]
    assert describe(report).endswith("next: normatch list recipes")
    x = np.random.default_rng(0).normal(size=(9, 4))
    x[8] = x[0]
    np.savez(tmp_path / "x.npz", x=x, y=np.array([0] * 7 + [-1, 1]))
    report = inspect(str(tmp_path / "x.npz"))
    assert [[member["sample"] for member in group] for group in report["label_conflicts"]] == [["train[0]", "train[8]"]]
    assert (report["sizes"], report["near_duplicates"]) == (None, [])
    assert "classes are 7.0 : 1" in report["remarks"][0]
    with pytest.raises(UserError, match="feature vectors"):
        inspect(str(tmp_path / "x.npz"), sheet=tmp_path / "s.png")


def test_a_manifest_and_unlabelled_pictures_elsewhere(folder: Path, tmp_path: Path) -> None:
    rows = "".join(f"{path},{path.parent.name}\n" for path in sorted((folder / "train").glob("[cd]*/[0-7].png")))
    (tmp_path / "more").mkdir()
    (tmp_path / "list.csv").write_text(f"path,label\n{rows}missing.png,cat\ncat\\1.png,cat\nmore,cat\n")
    report = inspect(str(tmp_path / "list.csv"), unlabelled=folder / "train" / "unlabeled")
    assert (report["labelled"], report["unlabelled"]) == (8, 5)
    windows = f"{tmp_path}/cat\\1.png: no such file; write / where it has \\"
    more = f"{tmp_path / 'more'}: a folder, not an image"
    assert report["unreadable"] == [f"{tmp_path / 'missing.png'}: no such file", windows, more]


def test_the_verb(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 20
    assert main(["data", "inspect", str(folder), "--no-cache"]) == 0
    assert "look alike" in capsys.readouterr().out


def test_classes_of_which_there_is_no_item_are_named(tmp_path: Path) -> None:
    """Training refuses them."""
    data, names = tmp_path / "x.npz", np.array(["a", "b", "c", "d", "e"])
    x, test_x = np.arange(40.0).reshape(20, 2), np.ones((2, 2))
    np.savez(data, x=x, y=np.arange(20) % 2, test_x=test_x, test_y=np.array([0, 2]), classes=names)
    remarks = inspect(str(data))["remarks"]
    assert "only in the test set: c" in remarks
    assert "not in the test set: b" in remarks
    assert "no sample is labelled d, e: training needs labelled samples of each class" in remarks
