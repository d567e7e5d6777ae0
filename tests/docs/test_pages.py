"""The pages: every link leads somewhere, and the code of the quickstart and the how-to pages runs."""

import csv
import json
import re
import runpy
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from normatch.autoconfig import minutes
from normatch.cli import main
from normatch.config import Config
from normatch.data.images import decode_all
from normatch.training import diagnostics, train
from normatch.training.bench import Pace

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]


def blocks(page: str, languages: str = r"\w+") -> list[tuple[str, str]]:
    """(language, code) of a page's blocks of code, in order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```({languages})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names under which GitHub knows a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith(("http://", "https://")):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.fixture(scope="module")
def desk(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader of the pages has it: a run, pictures, an array, and the command on the path."""
    folder = tmp_path_factory.mktemp("desk")
    train(tiny_config.replace(steps=2), folder / "runs" / "digits")
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    (folder / "pictures").mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / "pictures" / f"{i}.png")
    return folder


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("choose-labels.md", ["classes among them: 10 of 10", "disputed: "]),
        ("embeddings.md", ["of the digits", "of the 40 labels"]),
        ("export.md", ["model.onnx: ", "['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']"]),
        ("gpu.md", ["steps/s", "4 steps in"]),
        ("predict.md", ["12 predictions: labels.csv", "12 predictions: labels.parquet"]),
        ("reproduce.md", ["4 runs, 4 left with 16 steps", "3 runs, 3 left with 12 steps"]),
        ("resume.md", ["4 steps in"]),
    ],
)
def test_a_page_can_be_followed(
    page: str, said: list[str], desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page, shell and Python, share the folder, and those of Python their names; but all train for a
    few steps only."""
    monkeypatch.chdir(desk)
    names: dict[str, Any] = {}
    for language, code in blocks(page, "python|sh|bash"):
        if language == "python":
            short = re.sub(r"steps=\d+", "steps=4", code).replace("Classifier()", "Classifier(steps=4)")
            exec(short.replace("(0.0006, 0.06, 3)", "(0.006, 0.06, 2)"), names)
            continue
        for line in code.splitlines():
            if "timm:" not in line and "|" not in line:  # which need a download, and a shell
                argv = shlex.split(re.sub(r"--(steps|epoch) \d+", r"--\1 4", line), comments=True)
                plan = ["--dry-run"] if argv[1] == "reproduce" and "--dry-run" not in argv else []
                assert main([*argv[1:], *plan]) == 0, line
    shown = capsys.readouterr().out
    for words in said:
        assert words in shown


def test_every_command_of_the_quickstart_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a smaller folder as mixed as the page's, and as on a machine so slow that few steps fit into the time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NORMATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(minutes, "LEAST_STEPS", 1)
    monkeypatch.setattr(minutes, "pace", lambda job: Pace(start=0.0, step=100.0, evaluation=1.0))
    runpy.run_path(str(ROOT / "benchmarks" / "mixed_pictures.py"))["write_pictures"](Path("pictures"), 400)
    for line in "".join(code for _, code in blocks("quickstart.md", "sh")).splitlines():
        verb, *argv = shlex.split(line, comments=True) or [""]
        if verb == "rm":
            for path in map(Path, argv):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif verb == "normatch":
            assert main(argv) == 0, f"{line}: {capsys.readouterr().err}"
    shown = capsys.readouterr()
    assert "1 × same pixels under two labels" in shown.out
    assert "3 unreadable images skipped:\n" in shown.out
    assert json.loads(Path("runs/pictures/result.json").read_text())["evaluated_on"] == "test"
    with Path("labels.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(list(Path("pictures/train/unlabeled").iterdir())) - 3
    for made in ("sheet.png", "runs/pictures/report.html", "runs/pictures/model.onnx"):
        assert Path(made).is_file()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (31, 9), (900, 1100)])
def test_an_exported_model_is_given_what_training_reads(channels: int, size: tuple[int, int], tmp_path: Path) -> None:
    """By the function of the page on export, which needs no normatch."""
    path, exif = tmp_path / "1.jpg", Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)).save(path, exif=exif)
    (source,) = (code for _, code in blocks("export.md", "python") if "def read" in code)
    here: dict[str, Any] = {"np": np, "Image": Image, "ImageOps": ImageOps, "shape": (16, 12, channels)}
    exec(source[source.index("rows, columns, channels =") : source.index("images = ")], here)
    (expected,) = decode_all([path], size=(16, 12), channels=channels).images
    np.testing.assert_array_equal(here["read"](path), expected)


def test_the_pages_of_results_are_those_of_the_files(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "benchmarks" / "page.py"))["main"](tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.md"))
    assert len(made) == 10
    for page in made:
        assert (tmp_path / page).read_text() == (ROOT / "docs" / page).read_text(), "run python benchmarks/page.py"


def test_the_tables_of_scaling_are_those_of_the_files() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("scaling.md", "large-data.md")]
    for page, table in zip(pages, runpy.run_path(str(ROOT / "benchmarks" / "scaling.py"))["tables"](), strict=True):
        assert table in page, "run python benchmarks/scaling.py"


def test_every_warning_is_explained() -> None:
    rules = [rule.name for rule in diagnostics.RULES]
    text = (ROOT / "docs" / "warnings.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) == sorted(rules)


def test_the_page_of_methods_is_that_of_their_docstrings() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "methods_page.py"))["page"]()
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == made
