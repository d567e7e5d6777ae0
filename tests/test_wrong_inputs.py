"""Wrong commands, verb by verb: one line that names the value, exit code 2, and nothing left behind."""

import json
import shlex
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normatch.cli import VERBS, main
from normatch.files import read_sealed

Make = Callable[[Path], object]

QUICK = ["--steps", "2", "--epoch", "1", "--batch", "8", "--ratio", "1", "--log-every", "1", "--device", "cpu"]
Y = np.arange(20) % 2
X = np.random.default_rng(0).normal(size=(20, 4))


def picture(path: Path, side: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.name))
    Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)).save(path)
    return path


def pictures(*names: str) -> Make:
    return lambda here: [picture(here / name) for name in names]


pets = pictures(*(f"pets/{name}/{i}.png" for name in ("cat", "dog") for i in range(10)))
"""A folder in order."""


def file(name: str, content: bytes | str = "") -> Make:
    """The folder in order, and one more file."""

    def make(here: Path) -> None:
        pets(here)
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def listed(*lines: str) -> Make:
    return file("list.csv", "\n".join(lines) + "\n")


def arrays(**content: Any) -> Make:
    return lambda here: np.savez(here / "x.npz", **content)


def text_in_arrays(here: Path) -> None:
    with zipfile.ZipFile(here / "x.npz", "w") as packed:
        packed.writestr("x.npy", "1,2")
        packed.writestr("y.npy", "0")


def edited(name: str, **changes: Any) -> Make:
    """A run one of whose files says something else."""

    def make(here: Path) -> None:
        path = here / "run" / name
        path.write_text(json.dumps(read_sealed(path) | changes))

    return make


def replaced(name: str, content: str) -> Make:
    return lambda here: (here / "run" / name).write_text(content)


def removed(name: str) -> Make:
    return lambda here: (here / "run" / name).unlink()


COMMANDS: list[tuple[str, str]] = [
    ("trian digits-40", "unknown verb 'trian' (did you mean 'train'?): choose from"),
    ("inspect pets", "unknown verb 'inspect' (did you mean 'data inspect'?)"),
    ("data fetch cifar10", "unknown verb 'data fetch': choose from data get"),
    ("train digits-41", "unknown recipe 'digits-41' (did you mean 'digits-40'?)"),
    *((f"{verb} --nonsense", f"; see normatch {verb} --help\n") for verb in VERBS),
    ("train --batch-size 3", "unknown option --batch-size"),
    ("train --stepz 3", "unknown option --stepz (did you mean --steps?);"),
    ("train --steps", "--steps has no value"),
    ("train --steps 1e4", "--steps is '1e4': give a whole number; see"),
    ("train --labels few", "--labels is 'few': give a whole number; see"),
    ("train --minutes 10m", "--minutes is '10m': give a number; see"),
    ("train --optim.lr low", "--optim.lr is 'low': give a number; see"),
    ("train --settings.disagree max", "--settings.disagree is 'max': choose from 'min', 'drop'; see"),
    ("train --settings.alignment False", "'False' belongs to no option: a switch is --NAME or --no-NAME"),
    ("train --method supervised --settings.consensus nfc", "unknown option --settings.consensus;"),
    ("list", "WHAT is missing"),
    ("train --method normach", "did you mean 'normatch'?"),
    ("train --steps 0", "steps is 0"),
    ("train --labels 43", "labels is 43: give a multiple of the 10 classes"),
    ("train --labels 5000", "500"),
    ("train --fold 2", "leave it out"),
    ("train --labelled next.csv", "next.csv"),
    ("train --labelled", "--labelled names nothing"),
    ("train --backbone wrn-28-3", "did you mean"),
    ("train --backbone wrn-28-2", "(1, 8, 8)"),
    ("train --device tpu", "'tpu'"),
    ("train --augment.pad 99", "augment.pad is 99"),
    ("train --augment.mask 0.1 --device cpu", "augment.mask is 0.1, which is for feature"),
    ("train --method supervised --augment.ops 3 --device cpu", "augment.ops is 3, which is for strong views"),
    ("train --minutes -3", "minutes is -3.0: give a number of minutes"),
    ("train --minutes 1e300", "minutes is 1e+300: give a number"),
    ("train --minutes 3 --steps 9", "give one of them"),
    ("train cifar10-40 --data-root nowhere", "cifar10"),
    ("train --data cifar11", "'cifar11': no such folder or file, and no data set of that name"),
    ("train --data ''", "data is ''"),
    ("train --resume --out nowhere", "nowhere is no run"),
    ("train --config nowhere.json", "nowhere.json cannot be read (No such file or directory)"),
    ("eval nowhere", "nowhere is no run"),
    ("predict nowhere x.png", "nowhere"),
    ("suggest nowhere", "nowhere"),
    ("report nowhere", "nowhere is no run"),
    ("export nowhere", "nowhere"),
    ("compare nowhere", "compare needs at least two"),
    ("list models", "what is 'models': choose from 'methods', 'datasets', 'backbones', 'recipes'; see"),
    ("data inspect", "DATA is missing (A folder of images"),
    ("predict", "RUN is missing (Folder of the run); see"),
    ("data get", "NAME is missing (The data set: see"),
    ("data get cifar11", "if a plug-in defines it, set NORMATCH_PLUGINS to its module"),
    ("data inspect nowhere", "'nowhere': no such folder or file"),
    ("sweep digits-40 --grid ema", "--grid has 'ema': give each field once, as FIELD=VALUE,VALUE"),
    ("sweep digits-40 --grid ema=0.9 ema=0.8", "--grid has 'ema=0.8': give each field once"),
    ("sweep digits-40 --grid ema=0.9,0.9", "and different values"),
    ("sweep digits-40 --grid seed=1,2", "seeds are --seeds"),
    ("sweep digits-40 --grid config=a,b", "only fields of the config can vary"),
    ("sweep digits-40 --grid batch=many", "--batch is 'many': give a whole number"),
    ("sweep digits-40 --grid ema=2", "ema is 2"),
    ("sweep digits-40 --seeds 1 1", "seeds are 1 1: give one or more different numbers"),
    ("bench --repeats 0", "repeats is 0: give 1 or more"),
    ("bench --images 0", "images is 0: give 1 or more"),
    ("reproduce table9", "table9"),
    ("reproduce table1 --steps 0", "steps is 0"),
    ("reproduce table1 --seeds 0 0", "seeds are 0 0"),
    ("reproduce table1 --data digits --minutes 0", "minutes is 0.0: give a number above 0"),
    ("reproduce table1 --data-root .", "cifar10"),
    ("demo --steps 0", "steps is 0"),
    ("bench --seconds inf", "seconds is inf: give"),
    *(
        (f"{command} {'9' * 20}", f"{command.rpartition('--')[2].replace('-', '_')} is {'9' * 20}: give")
        for command in (
            *(f"train --{name}" for name in ("ratio", "batch", "steps", "seed", "labels", "evaluate-every")),
            *("train --settings.flow-hidden", "bench --repeats", "demo --seed", "predict run x.png --batch"),
            "suggest run --labels",
        )
    ),
]

DATA: list[tuple[str, str, Make]] = [
    ("train pets", "give your own data as --data pets", pets),
    ("train --out pets", "pets exists already and is no run", pets),
    ("train --out notes.txt/run --device cpu", "choose another --out", file("notes.txt")),
    ("train --config config.json", "nested too deeply", file("config.json", "[" * 100_000)),
    (
        "train --config config.json",
        "unknown field optim.optim",
        file("config.json", '{"optim": ' * 400 + "{}" + "}" * 400),
    ),
    ("train --config config.json", "it is no JSON object", file("config.json", "[]")),
    ("train --config config.json", "steps is 'many': give int", file("config.json", '{"steps": "many"}')),
    (
        "train --config config.json",
        "written by normatch 99.1",
        file("config.json", '{"normatch": "99.1", "colour": 1}'),
    ),
    ("train --resume --out .", "steps is 'many': give int", file("config.json", '{"steps": "many"}')),
    ("train --data pets.zip", "give a folder of images, a .csv", file("pets.zip")),
    ("train --data pets", "only one class, 'cat'", pictures("pets/cat/1.png")),
    ("train --data pets", "no labelled sample", pictures("pets/unlabeled/1.png")),
    (
        "train --data pets",
        "pets/1.png lies in no class folder",
        lambda here: (pets(here), picture(here / "pets/1.png")),
    ),
    ("train --data pets", "no images in pets/owl", file("pets/owl/notes.txt")),
    ("train --data pets", r"pets/cat/z\nero.png: the file is empty", file("pets/cat/z\nero.png")),
    ("train --data pets --backbone mlp", "backbone 'mlp' does not take", pets),
    ("train --data pets --image-size 100000", "no backbone takes", pets),
    ("train --data pets --image-size 1000 --backbone small-wide", "set another image_size", pets),
    ("train --data pets --augment.noise 0.3 --device cpu", "augment.noise is 0.3, which is for feature", pets),
    ("train --data pets --unlabeled more", "'more'", pets),
    ("train --data pets --no-include-labelled --device cpu", "and there are none", pets),
    ("train --data list.csv", "must be path,label", listed("pets/cat/1.png,cat")),
    ("train --data list.csv", "list.csv, line 2: no such file: x.png", listed("path,label", "x.png,cat")),
    ("train --data x.npz", "not finite", arrays(x=X * np.nan, y=Y)),
    ("train --data x.npz", "labels are float64", arrays(x=X, y=Y / 2)),
    ("train --data x.npz", "x is no array", text_in_arrays),
    ("train --data x.npz --image-size 8", "feature vectors", arrays(x=X, y=Y)),
    ("data inspect pets --sheet pets/cat/0.png", "pets/cat/0.png exists already", pets),
    ("bench --data pets --images 99 --device cpu", "images is 99", pets),
    ("reproduce table1 --out notes.txt", "notes.txt", file("notes.txt")),
]

RUNS: list[tuple[str, str, Make | None]] = [
    ("train digits-40 --out run", "run exists already, a finished run: choose another --out", None),
    (
        "train digits-40 --out run",
        "run exists already, a run that diverged: delete it, or choose another --out",
        lambda here: (
            removed("result.json")(here),
            replaced("warnings.json", '[{"name": "not-finite", "step": 1, "message": "", "remedy": ""}]')(here),
        ),
    ),
    ("train digits-40 --out run", "exists already: continue it with --resume", removed("result.json")),
    ("train --resume --out run --seed 3", "was started with seed 0, not 3", None),
    ("train --resume --out run --minutes 3", "leave it out", None),
    ("train cifar10-40 --resume --out run", "run is a run on digits, cifar10-40 is on cifar10", None),
    ("train --resume --out run", "run/config.json cannot be read", replaced("config.json", "{")),
    ("train --out run --resume", "run/result.json", replaced("result.json", "{}")),
    ("eval run", "unknown field colour", edited("config.json", colour=1)),
    ("eval run", "run/split.json", replaced("split.json", "[]")),
    ("eval run --on validation", "run has no validation", None),
    ("eval run --data pets", "data is 'pets', but the run was trained on the data set digits", None),
    ("eval run", "model.json", removed("model.json")),
    ("predict run x.png", "x.png", None),
    ("predict run pets", "or leave such out with --on-bad-image skip\n", file("pets/page.jpg", "<html>")),
    ("predict run pets --out nowhere/labels.csv", "nowhere", pets),
    ("predict run pets --out labels.txt", "ends in .csv or .parquet", pets),
    ("predict pets run", "pets", pets),
    ("suggest run --labels 0", "labels is 0", None),
    ("suggest run --out next.csv", "next.csv exists", file("next.csv")),
    ("report run", "run is not finished: continue it with normatch train --out run --resume", removed("result.json")),
    ("report run --json --out page.html", "leave out --json or --out", None),
    ("report run", "run/warnings.json", replaced("warnings.json", "5")),
    ("compare run run", "run is given twice", None),
    ("export run --format tf", "'tf'", None),
    ("export run --out m.pt2", "onnx", None),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main(["train", "digits-40", *QUICK, "--out", str(run)]) == 0
    return run


def content(here: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(here.rglob("*"))}


@pytest.mark.parametrize(("argv", "says", "make"), [*((*row, None) for row in COMMANDS), *DATA, *RUNS])
def test_a_wrong_command_is_one_line_and_leaves_nothing(
    argv: str,
    says: str,
    make: Make | None,
    finished: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "run" in shlex.split(argv):
        shutil.copytree(finished, "run")
    if make:
        make(tmp_path)
    before = content(tmp_path)
    capsys.readouterr()
    assert main(shlex.split(argv)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("normatch: ")
    assert shown.err.count("\n") == 1
    assert says in shown.err
    assert content(tmp_path) == before
