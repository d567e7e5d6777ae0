"""The numbers of each method, as its paper or, where that is silent, its published code has them."""

import pytest

from normatch.methods import methods
from tests.conftest import make_method

PUBLISHED: dict[str, dict[str, object]] = {
    "adamatch": {"threshold": 0.9, "memory": 0.999, "ramp": 0.5, "pseudo_label": "onehot"},
    "adsh": {"threshold": 0.95},
    "comatch": {
        "threshold": 0.95,
        "smoothing": 0.9,
        "memory": 5 * (64 + 448),
        "similarity": 0.8,
        "contrast": 0.2,
        "contrast_weight": 1.0,
        "dim": 64,
        "alignment": True,
        "pseudo_label": "soft",
    },
    "crepe": {"power": 3.0, "alpha": 0.99},
    "dash": {
        "factor": 1.0001,
        "decay": 1.27,
        "period": 9 / 1024,
        "least": 0.05,
        "warm_up": 0.01,
        "pseudo_label": "sharpened",
        "temperature": 0.5,
    },
    "fixmatch": {"threshold": 0.95, "pseudo_label": "onehot", "alignment": False},
    "flexmatch": {"threshold": 0.95},
    "flowgmm": {"label_weight": 3.0, "consistency": 1.0, "ramp": 1000 / 30_000, "noise": 1.0, "flow_lr": 1e-3},
    "freematch": {"memory": 0.999, "fairness": 0.05},
    "label-propagation": {"neighbours": 50, "power": 3.0, "alpha": 0.99},
    "laplacenet": {"neighbours": 50, "alpha": 0.99, "samples": 3, "mixup": 1.0},
    "mean-teacher": {"weight": 100.0, "ramp": 40_000 / 150_000},
    "mixmatch": {"weight": 75.0, "alpha": 0.75, "temperature": 0.5, "ramp": 16_384 / 2**20},
    "pi-model": {"weight": 100.0, "ramp": 80 / 300},
    "plcb": {"alpha": 4.0, "balance": 0.8, "entropy": 0.4, "warmup": 10 / 400, "pseudo_label": "soft"},
    "pseudo-label": {"weight": 3.0, "begin": 0.1, "end": 0.6},
    "remixmatch": {
        "weight": 1.5,
        "anchor_weight": 0.5,
        "rotation_weight": 0.5,
        "alpha": 0.75,
        "temperature": 0.5,
        "ramp": 1024 / 2**16,
        "alignment": True,
    },
    "semco": {"threshold": 0.95, "semantic_threshold": 0.7, "semantic_weight": 3.0, "group_distance": 0.2},
    "simmatch": {
        "threshold": 0.95,
        "smoothing": 0.9,
        "contrast": 0.1,
        "instance_weight": 1.0,
        "memory": 0.7,
        "dim": 128,
        "alignment": True,
        "pseudo_label": "soft",
    },
    "simple": {
        "weight": 75.0,
        "pair_weight": 75.0,
        "threshold": 0.95,
        "similarity": 0.9,
        "temperature": 0.5,
        "ramp": 0.0,
    },
    "softmatch": {"uniform": True, "n_sigma": 1.0, "pseudo_label": "onehot"},
    "uda": {"threshold": 0.8, "temperature": 0.4, "annealing": "none", "pseudo_label": "sharpened"},
    "vat": {"weight": 1.0, "epsilon": round(8 / 3072**0.5, 3), "iterations": 1, "entropy": 0.0},
}


VIEWS = {
    "adamatch": ("weak strong", "weak strong"),
    "comatch": ("weak", "weak strong strong"),
    "crepe": ("weak", "weak"),
    "flowgmm": ("weak", "weak weak"),
    "label-propagation": ("weak", "weak"),
    "laplacenet": ("weak weak weak", "strong strong strong"),
    "mean-teacher": ("weak weak", "weak weak"),
    "mixmatch": ("weak", "weak weak"),
    "pi-model": ("weak weak", "weak weak"),
    "plcb": ("weak", "weak"),
    "pseudo-label": ("weak", "weak"),
    "remixmatch": ("strong", "weak strong rotated"),
    "simple": ("weak", "weak weak strong"),
    "supervised": ("weak", ""),
    "vat": ("weak", "weak"),
}
"""Of labelled and unlabelled images, where they are not weak ones, and weak and strong ones."""


@pytest.mark.parametrize("name", methods.names())
def test_views_are_those_of_the_paper(name: str) -> None:
    views = make_method(name).views
    assert (" ".join(views.labelled), " ".join(views.unlabelled)) == VIEWS.get(name, ("weak", "weak strong"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_defaults_are_the_published_numbers(name: str) -> None:
    settings = methods.get(name).Settings()
    assert {key: getattr(settings, key) for key in PUBLISHED[name]} == pytest.approx(PUBLISHED[name])


def test_every_method_with_a_paper_is_here() -> None:
    """NorMatch's own defaults are compared with its paper by the tests of its tables."""
    assert PUBLISHED.keys() | {"normatch"} == {name for name, method in methods.items() if method.paper}


@pytest.mark.parametrize(
    ("name", "queue", "batches"),
    [
        ("adamatch", "relative.queue", 128),
        ("comatch", "alignment.queue", 32),
        ("remixmatch", "alignment.queue", 128),
        ("simmatch", "alignment.queue", 256),
    ],
)
def test_alignment_looks_back_as_far_as_published(name: str, queue: str, batches: int) -> None:
    assert len(make_method(name).get_buffer(queue)) == batches
