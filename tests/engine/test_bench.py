"""The bench: rates and parts of a step, without any data set at hand."""

import json

import pytest

from normatch.cli import main
from normatch.engine.bench import AUXILIARY, bench, describe
from normatch.recipes import recipes

QUICK = ["--batch", "4", "--ratio", "1", "--repeats", "2", "--seconds", "0.01", "--device", "cpu"]


@pytest.mark.parametrize("name", ["digits-40", "stl10-1000", "cifar100-400"])
def test_any_recipe_is_timed_without_its_data(name: str) -> None:
    config = recipes.get(name).build().replace(batch=2, ratio=1, device="cpu", backbone="auto")
    small = config.replace(image_size=16)
    report = bench(small, repeats=2, seconds=0.01)
    assert report["steps_per_second"] > 0
    assert len(report["repeats"]) == 2
    assert set(report["parts_ms"]) == {
        "augmentation",
        "forward",
        "backward",
        "optimisers",
        "average of weights",
        AUXILIARY,
    }
    assert report["peak_memory_bytes"] is None
    assert "steps/s" in describe(report)


def test_the_verb_compares_two_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "digits-40", *QUICK, "--compare", "supervised", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["method"], second["method"]) == ("normatch", "supervised")
    assert AUXILIARY not in second["parts_ms"]
    assert main(["bench", "digits-40", *QUICK, "--compare", "supervised"]) == 0
    assert "times the time of supervised" in capsys.readouterr().out
    assert main(["bench", "digits-40", *QUICK, "--compare", "nothing"]) == 2
    assert main(["bench", "--seconds", "-1"]) == 2
