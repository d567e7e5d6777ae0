"""CIFAR with few labels from pretrained weights: frozen features, baselines on them, and fine-tuned from there.

python benchmarks/pretrained.py --out FILE --data-root DATA --backbone efficientnet-lite0=WEIGHTS.pth writes FILE after
each result; called again, it skips what FILE has and resumes what was stopped. ``--frozen`` and ``--finetune`` set
fields of the two configs, as in ``--finetune optim.lr=0.003,0.01 norm_momentum=0``; several values are tried in all
combinations. Settings are chosen with ``--held-out 5000``: training images, drawn by seed, replace the test set.
"""

import argparse
import dataclasses
import functools
import hashlib
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from normatch import Config
from normatch.augment import AugmentConfig
from normatch.data import Corpus, Reading
from normatch.device import circumstances
from normatch.files import write_json
from normatch.methods.normatch import NorMatchSettings
from normatch.methods.parts.groups import OptimConfig
from normatch.training import Run, open_corpus, prepare, train
from normatch.training.bench import pace
from normatch.training.progress import Lines

FROZEN = Config(
    steps=300,
    epoch=30,
    batch=32,
    ratio=3,
    freeze=True,
    norm_momentum=0.1,
    optim=OptimConfig(lr=0.06),
    augment=AugmentConfig(mix=0.5, mask=0.5),
    ema=0.99,
    ema_ramp=True,
)
"""What ``normatch train --data`` chooses for photographs."""

FINETUNE = Config(
    steps=2000,
    epoch=100,
    batch=32,
    ratio=7,
    backbone="auto",
    settings=NorMatchSettings(passes="shared"),
    norm_momentum=0.0,
    optim=OptimConfig(lr=0.003, backbone_lr=1e-4, weight_decay=0.0),
    evaluate_every=500,
    checkpoint_every=500,
)

UNCACHED = Reading(cache=False)
"""So that every result includes the time of the embedding."""

NEIGHBOURS = 20
ALPHAS = (0.9, 0.99)
"""Of label spreading: the share that a sample takes from its neighbours."""


def changed(config: Config, changes: dict[str, Any]) -> Config:
    """The config with other values of fields, named as in flags: ``optim.lr``. The method comes first."""
    for name, value in sorted(changes.items(), key=lambda change: change[0] != "method"):
        outer, _, inner = name.replace("-", "_").rpartition(".")
        value = dataclasses.replace(getattr(config, outer), **{inner: value}) if outer else value
        config = config.replace(**{outer or inner: value})
    return config


def combinations(given: list[str]) -> list[dict[str, Any]]:
    """Each combination of the values in ``FIELD=VALUE[,VALUE …]``: numbers, words, true or false."""
    fields = dict(one.split("=", 1) for one in given)

    def value(text: str) -> Any:
        return json.loads(text) if text in ("true", "false", "null") or text[0] in "-.0123456789" else text

    chosen = itertools.product(*(map(value, values.split(",")) for values in fields.values()))
    return [dict(zip(fields, values, strict=True)) for values in chosen]


def spread(z: Tensor, labelled: Tensor, y: Tensor, z_test: Tensor, alpha: float, classes: int) -> Tensor:
    """Label spreading (Zhou et al. 2004) on the graph of nearest neighbours by cosine; the classes of ``z_test``."""

    def nearest(samples: Tensor, n: int) -> tuple[Tensor, Tensor]:
        parts = [(part @ z.T).topk(n) for part in samples.split(4096)]
        return torch.cat([part.values.clamp_min(0) for part in parts]), torch.cat([part.indices for part in parts])

    similarity, at = (found[:, 1:].flatten() for found in nearest(z, NEIGHBOURS + 1))
    edges = torch.stack([torch.arange(len(z), device=z.device).repeat_interleave(NEIGHBOURS), at])
    graph = torch.sparse_coo_tensor(edges, similarity, (len(z), len(z)), check_invariants=False)
    both = (graph + graph.T).coalesce()
    degree = torch.sparse.sum(both, 1).to_dense().clamp_min(1e-9).rsqrt()
    start = torch.zeros(len(z), classes, device=z.device)
    start[labelled] = one_hot(y, classes).to(start)
    scores = start
    for _ in range(100):
        scores = alpha * degree[:, None] * (both @ (degree[:, None] * scores)) + (1 - alpha) * start
    scores = scores / scores.sum(0).clamp_min(1e-12)  # every class as large as the others
    similarity, at = nearest(z_test, NEIGHBOURS)
    return (similarity[..., None] * scores[at]).sum(1).argmax(1)


def baselines(config: Config, corpus: Corpus) -> dict[str, Any]:
    """Accuracy and seconds of logistic regression and label spreading on the frozen features; the seconds of reading
    the images are not included, those of embedding them are."""
    start = time.perf_counter()
    job = prepare(config, corpus, reading=UNCACHED)
    assert job.samples.test is not None
    train_set, test = job.samples.train, job.samples.test
    embedding = time.perf_counter() - start
    raw, raw_test = (torch.from_numpy(np.asarray(part.inputs)).to(job.runtime.device) for part in (train_set, test))
    mean, std = raw.mean(0), raw.std(0).clamp_min(1e-6)
    z, z_test = (raw - mean) / std, (raw_test - mean) / std
    labelled = job.split.labelled
    y, truth = train_set.labels[labelled], test.labels

    def linear() -> Any:
        model = LogisticRegression(C=0.1, max_iter=1000).fit(z[torch.from_numpy(labelled)].cpu().numpy(), y)
        return model.predict(z_test.cpu().numpy())

    def spreading(alpha: float) -> Any:
        known, target = (torch.from_numpy(a).to(z.device) for a in (labelled, y))
        return spread(normalize(z), known, target, normalize(z_test), alpha, len(train_set.classes)).cpu().numpy()

    ways: dict[str, Callable[[], Any]] = {"logistic regression": linear}
    ways |= {f"label spreading, {alpha}": functools.partial(spreading, alpha) for alpha in ALPHAS}
    found = {}
    for name, predict in ways.items():
        start = time.perf_counter()
        accuracy = float((predict() == truth).mean())
        found[name] = {"accuracy": accuracy, "seconds": embedding + time.perf_counter() - start}
    return found


def trained(config: Config, corpus: Corpus, folder: Path, minutes: float | None = None) -> dict[str, Any]:
    """The result of the run in the folder, which is trained, or resumed if it was stopped; the seconds are those of
    everything but reading the images."""
    start = time.perf_counter()
    run, progress, begun = Run(folder), Lines(folder.name), folder.exists()
    if not (folder / "config.json").is_file():
        if minutes is not None:
            steps = pace(prepare(config, corpus)).steps_in(minutes, evaluations=4)
            config = config.replace(steps=steps, evaluate_every=steps // 4, checkpoint_every=steps // 4)
        run = train(config, folder, corpus=corpus, reading=UNCACHED, progress=progress)
    elif not run.finished:
        run = train(run.config, folder, resume=True, corpus=corpus, progress=progress)
    seconds = time.perf_counter() - start
    kept = ("accuracy", "n", "steps", "hardware", "start", "baselines")
    times = {"seconds": None if begun else seconds, "training_seconds": run.result["seconds"]}
    curve = [[record["step"], record["test/accuracy"]] for record in run.metrics() if "test/accuracy" in record]
    return {name: run.result[name] for name in kept if name in run.result} | times | {"curve": curve}


class Results:
    """The rows of a file, each found by its key, or made and written at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = json.loads(file.read_text())["results"] if file.is_file() else []

    def __call__(self, key: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        found = next((row for row in self.rows if row["key"] == key), None)
        if found is None:
            found = {"key": key} | make() | circumstances()
            self.rows.append(found)
            write_json(self.file, {"what": "CIFAR with few labels from pretrained weights", "results": self.rows})
            print({name: found[name] for name in found if name not in ("machine", "versions")}, flush=True)
        return found


@dataclass
class Task:
    """The images of one data set at one size, and what is asked of them."""

    given: argparse.Namespace
    result: Results
    corpus: Corpus
    usual: dict[str, Any]
    key: dict[str, Any]
    reading: dict[str, float]
    """Seconds that it took to read the images."""

    def measure(self, network: str, weights: str, seed: int, first: dict[str, Any]) -> None:
        """Baselines, the frozen stage with the changes ``first``, and all ways of fine-tuning from there."""
        usual = self.usual | {"seed": seed}
        key = self.key | {"backbone": network, "seed": seed}
        frozen = changed(FROZEN, first).replace(**usual, backbone=network, weights=weights or None)
        if self.given.baselines:
            self.result(key | {"what": "baselines"}, lambda: baselines(frozen, self.corpus) | self.reading)
        key |= {"frozen": first}
        folder = self.given.runs / _name(key)
        self.result(key | {"what": "frozen"}, lambda: trained(frozen, self.corpus, folder) | self.reading)
        for then in combinations(self.given.finetune) if self.given.finetune is not None else ():
            tuned = changed(FINETUNE, then).replace(**usual, start=folder)
            self.finetune(key | {"what": "finetuned", "finetune": then}, frozen, tuned)

    def finetune(self, key: dict[str, Any], frozen: Config, tuned: Config) -> None:
        key |= {"minutes": self.given.minutes}
        assert tuned.start is not None
        folder = tuned.start

        def make() -> dict[str, Any]:
            trained(frozen, self.corpus, folder)  # again, if its folder is no longer there
            return trained(tuned, self.corpus, self.given.runs / _name(key), self.given.minutes)

        self.result(key, make)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--runs", type=Path, default=Path("runs/pretrained"), help="folder of the runs")
    parser.add_argument("--data-root", type=Path, help="folder of the data sets' files")
    parser.add_argument("--data", nargs="+", default=["cifar10=40"], metavar="NAME=LABELS")
    parser.add_argument("--backbone", nargs="+", default=["efficientnet-lite0"], metavar="NAME[=WEIGHTS]")
    parser.add_argument("--image-size", nargs="+", type=int, default=[160])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--held-out", type=int, default=0, metavar="N", help="score on N training images instead")
    parser.add_argument("--baselines", action="store_true", help="of the same features as well")
    parser.add_argument("--frozen", nargs="*", default=[], metavar="FIELD=VALUES")
    parser.add_argument("--finetune", nargs="*", metavar="FIELD=VALUES", help="fine-tune as well")
    parser.add_argument("--minutes", type=float, help="of fine-tuning, which sets its steps")
    given = parser.parse_args()
    result = Results(given.out)
    for data, size in itertools.product(given.data, given.image_size):
        name, labels = data.split("=")
        start = time.perf_counter()
        usual = {"data": name, "data_root": given.data_root, "labels": int(labels), "image_size": size}
        corpus = open_corpus(Config(**usual))
        if given.held_out:
            usual["test_share"] = given.held_out / len(corpus.train)
            corpus = dataclasses.replace(corpus, test=None)
        key = {"data": data, "image_size": size, "held_out": given.held_out}
        task = Task(given, result, corpus, usual, key, {"reading_seconds": time.perf_counter() - start})
        for backbone, seed, first in itertools.product(given.backbone, given.seeds, combinations(given.frozen)):
            network, _, weights = backbone.partition("=")
            task.measure(network, weights, seed, first)


def _name(key: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
