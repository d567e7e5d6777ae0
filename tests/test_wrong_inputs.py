"""Every wrong input, verb by verb: one line that names it, exit code 2, and nothing left behind."""

import json
import shlex
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normatch.cli import main

Make = Callable[[Path], object]

QUICK = ["--steps", "2", "--epoch", "1", "--batch", "8", "--ratio", "1", "--log-every", "1", "--device", "cpu"]


@dataclass(frozen=True)
class Wrong:
    """A command line, a part of what it must say, and what is made before it is run."""

    argv: str
    says: str
    make: Make | None = None
    uses: str | None = None
    """The finished run, of digits or of vectors, a copy of which is there as ``run``."""


def picture(where: Path, name: str, side: int = 12) -> Path:
    path = where / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(len(name)).integers(0, 256, (side, side, 3), np.uint8)).save(path)
    return path


def pets(where: Path) -> None:
    """A folder in order: ten cats and ten dogs."""
    for i in range(10):
        picture(where, f"pets/cat/{i}.png")
        picture(where, f"pets/dog/{i}.png")


def pictures(*names: str) -> Make:
    return lambda where: [picture(where, name) for name in names]


def and_file(name: str, content: bytes | str) -> Make:
    """The folder in order, and one more file."""

    def make(where: Path) -> None:
        pets(where)
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def truncated(where: Path) -> None:
    pets(where)
    Image.fromarray(np.zeros((200, 200, 3), np.uint8)).save(where / "pets/cat/cut.jpg")
    content = (where / "pets/cat/cut.jpg").read_bytes()
    (where / "pets/cat/cut.jpg").write_bytes(content[: len(content) // 2])


def one_pixel(where: Path) -> None:
    for i in range(10):
        picture(where, f"pets/cat/{i}.png", 1)
        picture(where, f"pets/dog/{i}.png", 1)


def bomb() -> bytes:
    """A PNG of a few bytes that says it is 60,000 pixels wide and high."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def folders(*names: str) -> Make:
    def make(where: Path) -> None:
        for name in names:
            (where / name).mkdir(parents=True)

    return make


def arrays(**content: Any) -> Make:
    return lambda where: np.savez(where / "x.npz", **content)


def vectors(value: float = 0.0) -> Any:
    x = np.random.default_rng(0).normal(size=(20, 4))
    x[3, 1] = value
    return x


def edited(file: str, edit: Callable[[Any], Any]) -> Make:
    """A run one of whose files says something else."""

    def make(where: Path) -> None:
        path = where / "run" / file
        path.write_text(json.dumps(edit(json.loads(path.read_text()))))

    return make


def replaced(file: str, content: bytes) -> Make:
    return lambda where: (where / "run" / file).write_bytes(content)


def cut(file: str, lines: int) -> Make:
    """A run one of whose files ends after some lines."""

    def make(where: Path) -> None:
        path = where / "run" / file
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))

    return make


def removed(*files: str) -> Make:
    def make(where: Path) -> None:
        for file in files:
            (where / "run" / file).unlink()

    return make


def both(*makes: Make) -> Make:
    return lambda where: [make(where) for make in makes]


Y = np.arange(20) % 2

WRONG = {
    # What the command line itself says.
    "a verb": Wrong("trian", "unknown verb 'trian': choose from train"),
    "a recipe": Wrong("train digits-41", "unknown recipe 'digits-41'"),
    "a flag": Wrong("train --stepz 3", "did you mean --steps?"),
    "a number": Wrong("train --steps abc", "--steps"),
    "a number in words": Wrong("train --steps 1e4", "train: --steps is '1e4': give a whole number; see"),
    "a size in two numbers": Wrong(
        "train --image-size 32x32", "train: --image-size is '32x32': give a whole number; see"
    ),
    "minutes with their unit": Wrong("train --minutes 10m", "train: --minutes is '10m': give a number; see"),
    "a share in percent": Wrong("train --validation 50%", "train: --validation is '50%': give a number; see"),
    "batch norm of one item": Wrong(
        "train digits-40 --backbone quick-resnet --method supervised --batch 1",
        "batch is 1 and ratio 7, which method 'supervised' on backbone 'quick-resnet' cannot take (Expected",
    ),
    "a longer flag": Wrong("train --batch-size 3", "did you mean --batch?"),
    "a longer flag of another verb": Wrong("predict run x.png --output x.csv", "did you mean --out?"),
    "a folder with a blank that lacks quotes": Wrong(
        "train --data my cats", "unknown recipe 'cats' with --data my: put quotes around a path with spaces"
    ),
    "a folder with a blank where a recipe belongs": Wrong(
        "train 'my pets'", "give your own data as --data 'my pets'", folders("my pets")
    ),
    "no data at all": Wrong("train --data ''", "data is '': give a folder of images", pictures("a/1.png", "b/1.png")),
    "no data to inspect": Wrong("data inspect ''", "data is '': give a folder of images", pictures("a/1.png")),
    "a backbone for own data": Wrong("train --data pets --backbone resnet18", "did you mean 'resnet-18'?", pets),
    "a backbone that takes no pictures": Wrong(
        "train --data pets --backbone mlp", "backbone 'mlp' does not take", pets
    ),
    "parts in capitals": Wrong(
        "train --data pets",
        "pets/Test has folders in it: if it is no class, call it 'test'",
        pictures("pets/Test/cat/1.png", "pets/Train/cat/1.png", "pets/Train/dog/1.png"),
    ),
    "classes beside a test set": Wrong(
        "train --data pets",
        "pets/test has folders in it: if it is no class, move the class folders beside it into pets/train\n",
        pictures("pets/cat/1.png", "pets/dog/1.png", "pets/test/cat/1.png"),
    ),
    "classes beside a validation set": Wrong(
        "train --data pets",
        "beside it into pets/train, and call this one pets/test if it is to test on",
        pictures("pets/cat/1.png", "pets/dog/1.png", "pets/Val/cat/1.png"),
    ),
    "a word where there is no label": Wrong(
        "train --data list.csv",
        "line 2: the label is 'unlabeled'; leave it empty",
        and_file("list.csv", "path,label\npets/cat/1.png,unlabeled\n"),
    ),
    "nowhere to put a sheet": Wrong(
        "data inspect pets --sheet nowhere/s.png", "nowhere is no folder that can be written to", pets
    ),
    "a sheet that is a folder": Wrong("data inspect pets --sheet s.png", "s.png is a folder", folders("s.png")),
    "an unfinished run to report": Wrong(
        "report run",
        "run is not finished: continue it with normatch train --out run --resume",
        removed("result.json"),
        "digits",
    ),
    "a file of weights for a run": Wrong(
        "eval run/model.safetensors", "run/model.safetensors is no run (it has no config.json)", uses="digits"
    ),
    "a run and its pictures the wrong way round": Wrong("predict pets run", "pets has no model.json", pets, "digits"),
    "a pattern that finds nothing": Wrong(
        "predict run 'pets/*.jpg'", "no such file or folder: pets/*.jpg", pets, "digits"
    ),
    "a manifest without images to predict": Wrong(
        "predict run list.csv", "list.csv lists no images: add lines such as", and_file("list.csv", "path\n"), "digits"
    ),
    "notes to predict": Wrong(
        "predict run notes.txt", "notes.txt: not an image of a known kind", and_file("notes.txt", "path\n"), "digits"
    ),
    "channels that are no colours": Wrong(
        "train --data x.npz",
        "give uint8 images (N, H, W, 1 or 3)",
        arrays(images=np.zeros((20, 8, 8, 6), np.uint8), labels=Y),
    ),
    "an archive": Wrong("train --data pets.zip", "give a folder of images, a .csv", and_file("pets.zip", b"PK")),
    "one picture": Wrong("train --data pets/cat/1.png", "give a folder of images, a .csv file", pets),
    "no runs to compare": Wrong("compare", "0 runs given: compare needs at least two"),
    "a run twice": Wrong("compare run run", "run is given twice", uses="digits"),
    "a format that its name denies": Wrong("export run --out m.pt2", "of format onnx ends in .onnx", uses="digits"),
    "no steps": Wrong("train --steps 0", "steps is 0: give a whole number of at least 1"),
    "a method": Wrong("train --method normach", "did you mean 'normatch'?"),
    "a choice": Wrong("train --settings.consensus max", "'min', 'drop'"),
    "a setting of another method": Wrong(
        "train --method fixmatch --settings.consensus min",
        "method 'fixmatch' has no setting consensus, normatch has it; see normatch train --method fixmatch --help",
    ),
    "no name": Wrong("train --name ''", "name is '': give a name"),
    "labels that do not divide": Wrong("train --labels 43", "labels is 43: give a multiple of the 10 classes"),
    "more labels than there are": Wrong("train --labels 5000", "but 500 are needed"),
    "a share": Wrong("train --validation 1.5", "validation is 1.5"),
    "a decay": Wrong("train --ema 2", "ema is 2.0"),
    "a rate": Wrong("train --optim.lr -1", "optim.lr is -1.0"),
    "a rate of the whole length": Wrong("train --optim.muon 1", "optim.muon is 1.0: give a share from 0"),
    "an infinite rate": Wrong("train --optim.lr inf", "optim.lr is inf: give a finite number"),
    "a setting that is no number": Wrong(
        "train --settings.num-weight nan", "settings.num_weight is nan: give a finite"
    ),
    "a seed": Wrong("train --seed -1", "seed is -1"),
    "a fold of data without folds": Wrong("train --fold 2", "has no predefined folds, leave it out"),
    "named items of no file": Wrong(
        "train --labelled next.csv", "labelled is 'next.csv', which cannot be read (No such file or directory): give"
    ),
    "named items beyond the last": Wrong(
        "train --labels 2 --labelled next.txt",
        "labelled has item 9999: give those from 0",
        and_file("next.txt", "0 9999"),
    ),
    "named items of too few classes": Wrong(
        "train --labels 1 --labelled next.txt", "labelled has no label for class '", and_file("next.txt", "0")
    ),
    "named items in a folder of pictures": Wrong(
        "train --labelled pets", "pets is no run (it has no config.json)", pets
    ),
    "named items twice": Wrong(
        "train --labelled a.txt --labeled b.txt", "--labeled is given 2 times: give it once, with all places after it"
    ),
    "named items and a fold": Wrong("train --fold 0 --labelled a.txt", "fold is 0: give either it or labelled"),
    "a backbone": Wrong("train --backbone wrn-28-3", "did you mean"),
    "a backbone for other images": Wrong("train --backbone wrn-28-2", "(1, 8, 8)"),
    "files of a data set": Wrong("train cifar10-40 --data-root nowhere", "cifar10"),
    "a device": Wrong("train --device tpu", "tpu"),
    "more ops than can be meant": Wrong("train --augment.ops 99", "augment.ops is 99: allowed is 0 to 10"),
    "a padding": Wrong("train --augment.pad 99", "augment.pad is 99"),
    "contradictory settings": Wrong(
        "train --settings.no-stop-gradient --settings.passes shared", "settings.stop_gradient"
    ),
    "no pixels": Wrong("train --image-size 0", "image_size is 0: give"),
    "negative minutes": Wrong("train --minutes -3", "minutes is -3.0: give a positive number"),
    "minutes and steps": Wrong("train --minutes 3 --steps 9", "give one of them"),
    "a test set twice": Wrong(
        "train --data pets --test-share 0.2",
        "brings its own test set",
        pictures("pets/train/cat/1.png", "pets/train/dog/1.png", "pets/test/cat/1.png"),
    ),
    # Folders of pictures.
    "a data set": Wrong("train --data cifar11", "'cifar11': no such folder or file, and no data set of that name"),
    "a kind of file": Wrong(
        "train --data notes.txt", "give a folder of images, a .csv file or an .npz file", and_file("notes.txt", "hello")
    ),
    "an empty folder": Wrong("train --data pets", "no images in pets", folders("pets")),
    "one class": Wrong("train --data pets", "only one class, 'cat'", pictures("pets/cat/1.png")),
    "no labels": Wrong("train --data pets", "no labelled image", pictures("pets/unlabeled/1.png")),
    "a class whose only picture is tested on": Wrong(
        "train --data pets --test-share 0.6 --device cpu",
        "class 'owl' has no labelled item left to train on, but 1 is needed: label more, or set aside fewer",
        both(pets, pictures("pets/owl/1.png")),
    ),
    "a number that no label has": Wrong(
        "train --data x.npz",
        "set aside fewer with a smaller --test-share or --validation, or number the classes without gaps",
        arrays(x=vectors(), y=Y * 2),
    ),
    "test labels that are no numbers": Wrong(
        "train --data x.npz",
        "x.npz, its test items: labels are <U1: give whole numbers from 0",
        arrays(x=vectors(), y=Y, test_x=vectors(), test_y=Y.astype("<U1")),
    ),
    "too few test labels": Wrong(
        "train --data x.npz",
        "x.npz, its test items: labels are int64 of shape (1,): give one int64 for each of the",
        arrays(x=vectors(), y=Y, test_x=vectors(), test_y=Y[:1]),
    ),
    "a picture in no class": Wrong(
        "train --data pets",
        "pets/1.png lies in no class folder",
        both(pets, pictures("pets/1.png")),
    ),
    "an empty class": Wrong("train --data pets", "pets/owl has no pictures: put", both(pets, folders("pets/owl"))),
    "a class of a telephone's files": Wrong(
        "train --data pets",
        "pets/owl has no pictures that can be read, only 1 .heic file: convert them to",
        and_file("pets/owl/1.HEIC", "x"),
    ),
    "folders in a class": Wrong(
        "train --data pets",
        "pets/cat has subfolders: move its pictures directly into pets/cat",
        both(pets, folders("pets/cat/young")),
    ),
    "a test class without training images": Wrong(
        "train --data pets",
        "class 'owl' has test images",
        pictures("pets/train/cat/1.png", "pets/train/dog/1.png", "pets/test/owl/1.png"),
    ),
    "nothing unlabelled": Wrong(
        "train --data pets --no-include-labelled --device cpu", "needs unlabelled items, and there are none", pets
    ),
    "no folder of unlabelled pictures": Wrong("train --data pets --unlabeled more", "unlabelled is 'more'", pets),
    "an empty folder of unlabelled pictures": Wrong(
        "train --data pets --unlabeled more", "no images in more", both(pets, folders("more"))
    ),
    "unlabelled pictures that are labelled": Wrong(
        "train --data pets --unlabeled pets/cat", "pets/cat/0.png is in pets already, as 'cat'", pets
    ),
    "labels of own data that do not divide": Wrong("train --data pets --labels 3", "multiple of the 2 classes", pets),
    # Files that are no pictures.
    "an empty file": Wrong("train --data pets", "pets/cat/x.png: the file is empty", and_file("pets/cat/x.png", b"")),
    "a web page": Wrong(
        "train --data pets", "pets/dog/x.jpg: not an image of a known kind", and_file("pets/dog/x.jpg", "<html>")
    ),
    "a truncated picture": Wrong("train --data pets", "pets/cat/cut.jpg: ", truncated),
    "a decompression bomb": Wrong("train --data pets", "exceeds limit", and_file("pets/cat/x.png", bomb())),
    "pictures of one pixel": Wrong("train --data pets --device cpu", "(3, 1, 1)", one_pixel),
    "a cache that cannot be written": Wrong("train --data pets", "give --no-cache", and_file("blocked", "")),
    # Manifests.
    "no manifest": Wrong("train --data list.csv", "no such folder or file"),
    "an empty manifest": Wrong("train --data list.csv", "has no column 'path'", and_file("list.csv", "")),
    "a manifest without header": Wrong(
        "train --data list.csv", "and must be path,label", and_file("list.csv", "pets/cat/1.png,cat\n")
    ),
    "a manifest of semicolons": Wrong(
        "train --data list.csv",
        "its first line is 'path;label' and must be path,label; save it with commas, not semicolons",
        and_file("list.csv", "path;label\npets/cat/1.png;cat\n"),
    ),
    "a label with a comma": Wrong(
        "train --data list.csv",
        "list.csv, line 2: there are more values than the 2 columns; put quotes around",
        and_file("list.csv", "path,label\npets/cat/1.png,cat, young\n"),
    ),
    "a manifest without pictures": Wrong(
        "train --data list.csv", "lists no images", and_file("list.csv", "path,label\n")
    ),
    "a missing picture": Wrong(
        "train --data list.csv",
        "list.csv, line 2: no such file: x.png",
        and_file("list.csv", "path,label\nx.png,cat\n"),
    ),
    "a path as Windows writes it": Wrong(
        "train --data list.csv",
        "list.csv, line 2: no such file: pets\\cat\\1.png; write / where it has \\",
        and_file("list.csv", "path,label\npets\\cat\\1.png,cat\n"),
    ),
    "a path twice": Wrong(
        "train --data list.csv",
        "line 3: pets/cat/1.png is listed already on line 2 as 'cat', now as 'dog'; delete one",
        and_file("list.csv", "path,label\npets/cat/1.png,cat\npets/cat/1.png,dog\n"),
    ),
    "a manifest in another encoding": Wrong(
        "train --data list.csv", "give a CSV file in UTF-8", and_file("list.csv", b"path,label\n\xff.png,cat\n")
    ),
    "a value for a switch": Wrong(
        "train --settings.alignment False",
        "train: --settings.alignment is 'False', but takes no value: give --settings.alignment to turn it on or "
        "--settings.no-alignment to turn it off",
    ),
    "a value for a switch of a recipe": Wrong(
        "train digits-40 --augment.no_flip=true",
        "give --augment.flip to turn it on or --augment.no-flip to turn it off",
    ),
    "a value for a switch of a verb": Wrong("predict run x.png --force yes", "--force is 'yes', but takes no value"),
    # Arrays.
    "an array file that is none": Wrong(
        "train --data x.npz", "x.npz is not an .npz file, or is damaged: write", and_file("x.npz", "hello")
    ),
    "one label for all": Wrong(
        "train --data x.npz", "labels are of shape (): give one", arrays(x=vectors(), y=np.int64(1))
    ),
    "not a number": Wrong("train --data x.npz", "not finite", arrays(x=vectors(np.nan), y=Y)),
    "infinity": Wrong("train --data x.npz", "not finite", arrays(x=vectors(np.inf), y=Y)),
    "too few array labels": Wrong("train --data x.npz", "one int64 for each of the 20", arrays(x=vectors(), y=Y[:7])),
    "labels that are no whole numbers": Wrong("train --data x.npz", "labels are float64", arrays(x=vectors(), y=Y / 2)),
    "labels beyond the classes": Wrong(
        "train --data x.npz", "labels run from 0 to 1", arrays(x=vectors(), y=Y, classes=np.array(["only"]))
    ),
    "labels that count no classes": Wrong(
        "train --data x.npz", "number the classes from 0 on", arrays(x=vectors(), y=Y + 10**12)
    ),
    "numbers that are too large": Wrong(
        "train --data x.npz", "or overflow float32: fix or remove them", arrays(x=vectors(1e300), y=Y)
    ),
    "vectors of no numbers": Wrong(
        "train --data x.npz --device cpu",
        "no backbone takes items of shape (0,): give vectors of at least one number (",
        arrays(x=np.zeros((20, 0)), y=Y),
    ),
    "a class without a name": Wrong(
        "train --data x.npz",
        "x.npz: classes has no name for class 1: give it one",
        arrays(x=vectors(), y=Y, classes=np.array(["a", ""])),
    ),
    "a class name twice": Wrong(
        "train --data x.npz", "classes has 'a' twice", arrays(x=vectors(), y=Y, classes=np.array(["a", "a"]))
    ),
    "two arrays of images": Wrong(
        "train --data x.npz", "has 'images' and 'x', which mean the same", arrays(x=vectors(), images=vectors(), y=Y)
    ),
    "an array to test on by another name": Wrong(
        "train --data x.npz", "has x_val, which is not read", arrays(x=vectors(), y=Y, x_val=vectors(), y_val=Y)
    ),
    "no array labels": Wrong("train --data x.npz", "it must have", arrays(x=vectors())),
    "no known array label": Wrong("train --data x.npz", "no labelled item", arrays(x=vectors(), y=Y * 0 - 1)),
    "objects": Wrong("train --data x.npz", "plain arrays only", arrays(x=np.array([[{}]] * 20), y=Y)),
    "a size for vectors": Wrong("train --data x.npz --image-size 8", "feature vectors", arrays(x=vectors(), y=Y)),
    "pictures for vectors": Wrong(
        "train --data x.npz --unlabeled pets", "holds feature vectors", both(pets, arrays(x=vectors(), y=Y))
    ),
    "ops for vectors": Wrong(
        "train --data x.npz --augment.ops 3 --device cpu",
        "augment.ops is 3, which is for images, but the items are feature vectors: leave it out",
        arrays(x=vectors(), y=Y),
    ),
    "noise for pictures": Wrong(
        "train --data pets --augment.noise 0.3 --device cpu",
        "augment.noise is 0.3, which is for feature vectors, but the items are images: leave it out",
        pets,
    ),
    "ops without strong views": Wrong(
        "train --method supervised --augment.ops 3 --device cpu",
        "augment.ops is 3, which is for strong views, but method 'supervised' has none: leave it out",
    ),
    "two folders of data": Wrong("train --data pets --data=pets", "--data is given 2 times: give it once", pets),
    "two folders more": Wrong(
        "train --data pets --unlabeled pets --unlabelled pets", "--unlabeled is given 2 times: give it once", pets
    ),
    "a name that is a place": Wrong("train --name ../x", "name is '../x': give a name without slashes"),
    "masks for digits": Wrong("train --augment.mask 0.1 --device cpu", "augment.mask is 0.1, which is for feature"),
    "masks for digits to time": Wrong("bench --augment.mask 0.1 --device cpu", "augment.mask is 0.1, which is for"),
    # Folders of runs.
    "a run that exists": Wrong(
        "train digits-40 --out run", "run exists already, a finished run: choose another --out", uses="digits"
    ),
    "a place that cannot be written": Wrong(
        "train digits-40 --out notes.txt/run --device cpu", "choose another --out", and_file("notes.txt", "hello")
    ),
    "nothing to resume": Wrong("train --resume --out nowhere", "nowhere is no run"),
    "another seed to resume": Wrong(
        "train --resume --out run --seed 3", "was started with seed 0, not 3", uses="digits"
    ),
    "minutes to resume": Wrong("train --resume --out run --minutes 3", "leave it out", uses="digits"),
    "a config that is no JSON": Wrong(
        "train --resume --out run", "run/config.json cannot be read", replaced("config.json", b"{"), "digits"
    ),
    "a config that is no object": Wrong(
        "eval run",
        "run/config.json cannot be read (it holds a list, not an object): restore it or train again",
        replaced("config.json", b"[1]"),
        "digits",
    ),
    "a config that is no text": Wrong(
        "eval run", "run/config.json cannot be read", replaced("config.json", b"\xff\xfe"), "digits"
    ),
    "an unknown field": Wrong(
        "eval run", "unknown field colour", edited("config.json", lambda config: config | {"colour": 1}), "digits"
    ),
    "a value of another kind": Wrong(
        "eval run", "steps is 'many'", edited("config.json", lambda config: config | {"steps": "many"}), "digits"
    ),
    "a newer version": Wrong(
        "eval run",
        "run was written by normatch 99.1.0",
        edited("config.json", lambda config: config | {"normatch": "99.1.0", "colour": 1}),
        "digits",
    ),
    "a damaged split": Wrong(
        "train --resume --out run",
        "run/split.json cannot be read",
        both(removed("result.json"), replaced("split.json", b"[]")),
        "digits",
    ),
    "a split that is no object": Wrong(
        "eval run",
        "run/split.json cannot be read (it holds a list, not an object)",
        replaced("split.json", b"[]"),
        "digits",
    ),
    "a model that is no object": Wrong(
        "predict run x.png",
        "run/model.json cannot be read (it holds a list, not an object)",
        replaced("model.json", b"[1]"),
        "digits",
    ),
    "no run to score": Wrong("eval nowhere", "nowhere is no run"),
    "a run to score that has lost its model": Wrong(
        "eval run", "run is finished, but has no model.json: restore it", removed("model.json"), "digits"
    ),
    "predictions that end early": Wrong(
        "report run",
        "run/predictions.csv has 49 test items whose class is known, but result.json counts 360: restore it",
        cut("predictions.csv", 50),
        "digits",
    ),
    "predictions that end early, not changed data": Wrong(
        "eval run", "run/predictions.csv has 49 test items", cut("predictions.csv", 50), "digits"
    ),
    "predictions without a heading": Wrong(
        "report run", "run/predictions.csv cannot be read", cut("predictions.csv", 0), "digits"
    ),
    "nothing held out": Wrong("eval run --on validation", "has no validation items", uses="digits"),
    "data that is gone": Wrong("eval run", "no such folder or file", uses="vectors"),
    "a path that leads nowhere": Wrong(
        "train --data ./pets",
        "data is './pets': no such folder or file; check the path or, if it has moved, give its new place",
    ),
    "data with other classes": Wrong(
        "eval run",
        "its classes have changed ('2' is new)",
        arrays(x=vectors(), y=np.arange(20) % 3),
        "vectors",
    ),
    "damaged weights": Wrong(
        "eval run", "run/model.safetensors cannot be read (", replaced("model.safetensors", b"{}"), "digits"
    ),
    "weights of another model": Wrong(
        "predict run pets",
        "run/model.safetensors does not fit model.json (head.weight is (10, 128), not (2, 128)): restore it or "
        "train again",
        both(pets, edited("model.json", lambda spec: spec | {"classes": ["a", "b"]})),
        "digits",
    ),
    "a model of a newer version": Wrong(
        "predict run pets",
        "model.json cannot be read (unknown field magic",
        both(pets, edited("model.json", lambda spec: spec | {"magic": 1})),
        "digits",
    ),
    "no run to export": Wrong("export nowhere", "nowhere has no model.json"),
    "an export that exists": Wrong(
        "export run --out there.onnx", "there.onnx exists already", lambda here: (here / "there.onnx").touch(), "digits"
    ),
    "a format of export": Wrong("export run --format tf", "tf", uses="digits"),
    "a kind of table": Wrong("predict run x.png --out x.txt", "ends in .csv or .parquet", uses="digits"),
    "a page of another kind": Wrong("report run --out x.pdf", "x.pdf is to be an HTML page", uses="digits"),
    "a page over another file": Wrong(
        "report run --out notes.txt --device cpu", "notes.txt exists already", and_file("notes.txt", "keep"), "digits"
    ),
    "a sheet over a picture": Wrong(
        "data inspect pets --sheet pets/cat/0.png", "pets/cat/0.png exists already: choose another name", pets
    ),
    "a result over another file": Wrong(
        "bench --out notes.txt", "notes.txt exists already", and_file("notes.txt", "x")
    ),
    "a page and its numbers": Wrong("report run --json --out page.html", "leave out --json or --out", uses="digits"),
    "no run to report": Wrong("report nowhere", "nowhere is no run"),
    "one run to compare with nothing": Wrong("compare nowhere", "compare needs at least two"),
    "no run to predict with": Wrong("predict nowhere x.png", "nowhere"),
    "a run to predict with that has lost its model": Wrong(
        "predict run pets", "has no model.safetensors", both(pets, removed("model.safetensors")), "digits"
    ),
    "nothing to predict": Wrong("predict run x.png", "no such file or folder: x.png", uses="digits"),
    "a folder without pictures to predict": Wrong("predict run more", "no images in more", folders("more"), "digits"),
    "a telephone's files to predict": Wrong(
        "predict run more", "no images in more, only 1 .heic file: give", and_file("more/1.HEIC", "x"), "digits"
    ),
    "a web page to predict": Wrong(
        "predict run pets --out labels.csv", "pets/x.jpg", and_file("pets/x.jpg", "<html>"), "digits"
    ),
    "pictures for a model of vectors": Wrong("predict run pets", "takes feature vectors of length 4", pets, "vectors"),
    "a file that cannot be written": Wrong(
        "predict run pets --out nowhere/labels.csv", "cannot write nowhere/labels.csv", pets, "digits"
    ),
    # suggest
    "nothing to suggest": Wrong("suggest run --labels 0", "labels is 0: give the number of items", uses="digits"),
    "suggestions into another kind of file": Wrong(
        "suggest run --out next.txt", "out is next.txt: give a name that ends in .csv or .parquet", uses="digits"
    ),
    "suggestions over a file": Wrong(
        "suggest run --out next.csv", "next.csv exists", and_file("next.csv", "mine"), "digits"
    ),
    "a sheet of suggestions over a file": Wrong(
        "suggest run --sheet next.png", "next.png exists", and_file("next.png", "mine"), "digits"
    ),
    "all vectors have labels": Wrong(
        "suggest run", "run has no item without a label: add some to the data", arrays(x=vectors(), y=Y), "vectors"
    ),
    "suggestions from data that is gone": Wrong("suggest run", "no such folder or file", uses="vectors"),
    "suggestions from what is no run": Wrong("suggest pets", "pets", pets),
    # The other verbs.
    "a kind of thing": Wrong("list models", "models"),
    "no kind of thing": Wrong("list", "list"),
    "an action": Wrong("data fetch cifar10", "unknown action 'fetch': choose from get, inspect, cache"),
    "no action": Wrong("data", "no action: choose from"),
    "a data set to get": Wrong("data get cifar11", "if a plug-in defines it, set NORMATCH_PLUGINS to its module"),
    "nothing to inspect": Wrong("data inspect nowhere", "'nowhere': no such folder or file"),
    "an empty folder to inspect": Wrong("data inspect pets", "no images in pets", folders("pets")),
    "a sheet of an unknown kind": Wrong("data inspect pets --sheet s.xyz", "ends in .png", pets),
    "a flag of the cache": Wrong("data cache --cleer", "did you mean --clear?"),
    "no repeats": Wrong("bench --repeats 0", "repeats is 0"),
    "nowhere to keep a timing": Wrong("bench --out nowhere/x.json", "nowhere is no folder that can be written to"),
    "a zero byte in a manifest": Wrong(
        "data inspect list.csv",
        r"the path 'un/1\x00.png' has a zero byte in it",
        and_file("list.csv", "path,label\nun/1\0.png,cat\n"),
    ),
    "a zero byte in a label": Wrong(
        "data inspect list.csv",
        r"line 2: the label 'cat\x00' has a zero byte in it",
        and_file("list.csv", "path,label\npets/cat/1.png,cat\0\n"),
    ),
    "a file listed with a label and without": Wrong(
        "data inspect list.csv",
        "line 3: pets/cat/1.png is listed already on line 2 without a label, now as 'cat'; delete one",
        and_file("list.csv", "path,label\npets/cat/1.png,\npets/cat/1.png,cat\n"),
    ),
    "a folder in a list": Wrong(
        "train --data list.csv",
        "list.csv, line 2: pets/cat is a folder; give an image",
        and_file("list.csv", "path,label\npets/cat,cat\npets/dog/1.png,dog\n"),
    ),
    "a line break in a name": Wrong("train --data pets", r"pets/cat/z\nero.png", and_file("pets/cat/z\nero.png", b"")),
    "objects to predict": Wrong(
        "predict run bad.npy",
        "write a plain array with numpy.save",
        lambda where: np.save(where / "bad.npy", np.array([None, "x"], dtype=object)),
        "digits",
    ),
    "more pictures that are not there": Wrong(
        "train --data pets --unlabeled more", "give a folder of images with --unlabeled, its new place if it has", pets
    ),
    "a demonstration of no steps": Wrong("demo --steps 0", "steps is 0"),
    "no images to time": Wrong("bench --items -5", "items is -5"),
    "fewer images to time than labels": Wrong(
        "bench --items 30 --validation 0.5 --device cpu", "items is 30: give at least 80, which the labels"
    ),
    "noise in place of one's own images": Wrong(
        "bench --data pets --items 99 --device cpu", "items is 99, but pets is timed with its own items", pets
    ),
    "a result that is cut off": Wrong(
        "report run", "run/result.json cannot be read", replaced("result.json", b"{"), "digits"
    ),
    "a result that says nothing": Wrong(
        "train --out run --resume",
        "run/result.json cannot be read (it has no accuracy)",
        replaced("result.json", b"{}"),
        "digits",
    ),
    "a result that is no number": Wrong(
        "report run",
        "run/result.json cannot be read (accuracy is 'good'): restore it",
        edited("result.json", lambda result: result | {"accuracy": "good"}),
        "digits",
    ),
    "counts that are none": Wrong(
        "report run",
        "run/result.json cannot be read (label_counts is [1]): restore it",
        edited("result.json", lambda result: result | {"label_counts": [1]}),
        "digits",
    ),
    "a metric without a step": Wrong(
        "report run",
        "run/metrics.jsonl cannot be read (a line is no record of a step): restore it",
        replaced("metrics.jsonl", b'{"loss": 1.0}\n'),
        "digits",
    ),
    "a metric that is a word": Wrong(
        "report run",
        "run/metrics.jsonl cannot be read (a line is no record of a step): restore it",
        replaced("metrics.jsonl", b'{"step": 1, "loss": "low"}\n'),
        "digits",
    ),
    "warnings that are a number": Wrong(
        "report run",
        "run/warnings.json cannot be read (it holds a number, not a list): restore it",
        replaced("warnings.json", b"5"),
        "digits",
    ),
    "a warning that is a number": Wrong(
        "report run",
        "run/warnings.json cannot be read (it holds a number, not an object): restore it",
        replaced("warnings.json", b"[5]"),
        "digits",
    ),
    "a warning without a remedy": Wrong(
        "train --out run --resume",
        "run/warnings.json cannot be read (it has no remedy): restore it",
        replaced("warnings.json", b'[{"name": "collapse", "step": 1, "message": "one class takes all"}]'),
        "digits",
    ),
    "positions that are none": Wrong(
        "eval run",
        "run/split.json cannot be read (ValueError('labelled has something else than positions')): restore it",
        edited("split.json", lambda split: split | {"labelled": [-1]}),
        "digits",
    ),
    "names of files that are none": Wrong(
        "eval run",
        "run/split.json cannot be read (files is 5): restore it",
        edited("split.json", lambda split: split | {"files": 5}),
        "digits",
    ),
    "a result that is a list": Wrong(
        "eval run",
        "run/result.json cannot be read (it holds a list, not an object)",
        replaced("result.json", b"[]"),
        "digits",
    ),
    "a compared model that says nothing": Wrong(
        "compare run copy",
        "model.json cannot be read",
        lambda where: [
            shutil.copytree(where / "run", where / "copy"),
            (where / "copy" / "model.json").write_text("{}"),
        ],
        "digits",
    ),
    "the only picture to predict": Wrong(
        "predict run x.png --on-bad-image skip",
        "nothing to predict: x.png: not an image of a known kind",
        lambda where: (where / "x.png").write_text("hello"),
        "digits",
    ),
    "warnings that are cut off": Wrong(
        "report run", "run/warnings.json cannot be read", replaced("warnings.json", b"["), "digits"
    ),
    "a folder where a recipe belongs": Wrong("train pets", "give your own data as --data pets", pets),
    "a folder that is no run": Wrong("train --out pets", "pets exists already and is no run", pets),
    "images that no network takes": Wrong("train --data pets --image-size 100000", "no backbone takes items", pets),
    "images that the network does not take": Wrong(
        "train --data pets --image-size 1000 --backbone small-wide",
        "image_size is 1000, but backbone 'small-wide'",
        pets,
    ),
    "test items that have changed": Wrong(
        "eval run", "its test items have changed", arrays(x=vectors(), y=np.arange(20) // 10), "vectors"
    ),
    "a recipe of other data to resume": Wrong(
        "train cifar10-40 --resume --out run", "run is a run on digits, cifar10-40 is on cifar10", None, "digits"
    ),
    "a recipe to time": Wrong("bench digits-41", "unknown recipe 'digits-41'"),
    "a method to compare": Wrong("bench --compare nothing", "unknown method 'nothing'"),
    "own data to time": Wrong("bench --data nowhere", "no such folder or file"),
    "a table that the paper lacks": Wrong(
        "reproduce table9", "unknown table or figure 'table9': choose from all, table1"
    ),
    "no table": Wrong("reproduce", "table1 to table7, figure3 to figure5"),
    "a grid of no steps": Wrong("reproduce table1 --steps 0", "steps is 0: give"),
    "a rate that turns negative": Wrong("train --optim.cosine 0.8", "optim.cosine is 0.8: give a number from 0"),
    "a seed twice": Wrong("reproduce table1 --seeds 0 0", "seeds are 0 0: give different numbers"),
    "a seed below 0": Wrong("reproduce table1 --seeds 1 -2", "seeds are 1 -2: give different numbers from 0 on"),
    "a stand-in without a recipe": Wrong("reproduce table1 --data iris", "data is 'iris', which no recipe is for"),
    "a stand-in for data sets": Wrong(
        "reproduce table6 --data digits", "table6 is about its own data and cannot be trained on digits"
    ),
    "a run of another name": Wrong("reproduce table1 --data digits --only dropout", "no run is called dropout"),
    "results into a file": Wrong("reproduce table1 --out x", "x is a file", and_file("x", "")),
    "a paper's data set that is not there": Wrong("reproduce table1 --data-root .", "cifar10"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run on digits, and one on vectors in x.npz, of the folder where it is run."""
    where = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        arrays(x=vectors(), y=Y)(where)
        assert main(["train", "digits-40", *QUICK, "--out", "digits"]) == 0
        assert main(["train", "--data", "x.npz", *QUICK, "--out", "vectors"]) == 0
    return {name: where / name for name in ("digits", "vectors")}


def content(where: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(where.rglob("*"))}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line_exit_code_2_and_leaves_nothing(
    case: str,
    finished: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = WRONG[case]
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("NORMATCH_CACHE", str(here / "blocked" if "cache that" in case else tmp_path / "cache"))
    if wrong.uses:
        shutil.copytree(finished[wrong.uses], here / "run")
        # Its data belongs beside it, where a case puts some, or none.
        edited("config.json", lambda config: config | {"data": Path(config["data"]).name})(here)
    if wrong.make:
        wrong.make(here)
    before = content(here)
    capsys.readouterr()
    assert main(shlex.split(wrong.argv)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("normatch: ")
    assert shown.err.count("\n") == 1
    assert wrong.says in shown.err
    assert content(here) == before


def test_there_are_enough() -> None:
    verbs = {wrong.argv.split()[0] for wrong in WRONG.values()}
    assert {"train", "eval", "predict", "suggest", "data", "list", "bench", "reproduce"} <= verbs
    assert len(WRONG) >= 40
