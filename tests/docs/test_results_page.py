"""The page of results is what its files say."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy.stats import t

from normatch.files import read_json
from tests.docs.scripts import BENCHMARKS, load_script

PROJECT = Path(__file__).parents[2]
RESULTS = PROJECT / "benchmarks" / "results"
TRUTH = "confusion: rows are the truth"
"""Runs have it since errors are kept."""
SHORT, BRIEF = "cifar10-40-{}-10240", "cifar10-40-brief-{}-8400"
"""Names of the runs with 40 labels of CIFAR-10 in WRN-28-2, and of those of cifar10-40-brief."""
IN_TABLES_1_AND_3 = ("fixmatch", "ncue", "ncue-drop", "ncue-num", "no-stop")
AIRPLANE, BIRD, CAT, DEER, DOG, HORSE = 0, 2, 3, 4, 5, 7


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return load_script("page")


def test_it_is_made_of_the_files(generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    made = generator.page()
    assert made == (PROJECT / "docs" / "results.md").read_text(encoding="utf-8"), "run python benchmarks/page.py"
    assert "<!--" not in made
    for picture in tmp_path.rglob("*.svg"):
        kept = PROJECT / "docs" / picture.relative_to(tmp_path)
        assert picture.read_bytes() == kept.read_bytes()


def test_every_file_of_a_run_is_linked(generator: ModuleType) -> None:
    page = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    for file in (PROJECT / "benchmarks" / "results" / "reproduce").glob("*.json"):
        assert f"](../benchmarks/results/reproduce/{file.name})" in page


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Their mean, and the ends of its 95 % interval."""
    mean, n = statistics.mean(differences), len(differences)
    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(differences) / n**0.5
    return mean, mean - half, mean + half


def signed(number: float, places: int = 1) -> str:
    return f"{number:.{places}f}".replace("-", "−")


def of_digits(method: str) -> list[float]:
    runs: list[dict[str, Any]] = read_json(RESULTS / "digits-40.json")["runs"]
    return [100 * run["accuracy"] for run in runs if run["method"] == method]


def of_features(estimator: str, task: str) -> list[float]:
    runs: list[dict[str, Any]] = read_json(RESULTS / "features.json")["runs"]
    return [100 * run["accuracy"] for run in runs if (run["estimator"], run["task"]) == (estimator, task)]


def lead_of_the_default(estimator: str) -> float:
    """Points of validation accuracy by which the defaults on vectors are above the next best of the settings tried."""
    means = read_json(RESULTS / "features-choices.json")["means"]
    tried = {row["estimator"]: row["mean"] for row in means if row["estimator"].startswith(estimator)}
    default = tried.pop(f"{estimator} mlp mask=0.5 mix=0.5 steps=300")
    return float(default - max(tried.values()))


def of_paper(trial: str) -> list[float]:
    files = (RESULTS / "reproduce" / f"digits-40-{trial}-600-seed{seed}.json" for seed in range(3))
    return [100 * read_json(file)["accuracy"]["last weights"] for file in files]


def of_cifar(trial: str, name: str = SHORT) -> dict[int, float]:
    """The accuracy of each seed with 40 labels."""
    runs = (run_of_paper(f"{name.format(trial)}-seed{seed}") for seed in range(3))
    return {run["seed"]: 100 * run["accuracy"]["last weights"] for run in runs}


def gain(trial: str, over: str, name: str = SHORT) -> list[float]:
    mine, base = of_cifar(trial, name), of_cifar(over, name)
    return [mine[seed] - base[seed] for seed in mine]


def above(first: list[float], second: list[float]) -> tuple[str, str, str]:
    mean, low, high = interval([a - b for a, b in zip(first, second, strict=True)])
    return signed(mean), signed(low), signed(high)


Curve = dict[int, float]
"""Percent at each step that has them."""


def percent(points: list[list[float]]) -> Curve:
    return {int(step): 100 * value for step, value in points}


def last(curve: Curve) -> float:
    return curve[max(curve)]


def minutes_of(run: dict[str, Any]) -> float:
    """Of its steps and evaluations, without the start."""
    return float(run["steps"] / run["steps_per_second"] / 60)


def run_of_paper(name: str) -> dict[str, Any]:
    run: dict[str, Any] = read_json(RESULTS / "reproduce" / f"{name}.json")
    return run


def searched(labels: int) -> list[dict[str, Any]]:
    """The runs of the search with so many labels, in their order."""
    runs = read_json(RESULTS / "cifar10-fast-choices.json")["runs"]
    return [run for run in runs if run["labels"] == labels]


def has_ops(run: dict[str, Any]) -> bool:
    """Whether it is a run of the search with other strong views: those with 40 labels came after the recipe."""
    return "augment.ops" in run["changes"]


def claims_of_digits() -> Iterator[str]:
    spreading, fixmatch = (above(of_digits("normatch"), of_digits(other)) for other in ("LabelSpreading", "fixmatch"))
    yield f"{spreading[0]} points above LabelSpreading (95 % interval of the mean {spreading[1]} to {spreading[2]})"
    yield f"{fixmatch[0]} above FixMatch ({fixmatch[1]} to {fixmatch[2]}: not distinguishable)"
    ncue = above(of_paper("ncue"), of_paper("fixmatch"))
    yield f"NCUE {ncue[0]} over FixMatch, interval {ncue[1]} to {ncue[2]}"
    let_in, flows = (above(of_paper(trial), of_paper("ncue-num")) for trial in ("no-stop", "nfc-nfc"))
    yield f"let into the backbone {let_in[0]}, {let_in[1]} to {let_in[2]}"
    yield f"a softmax head and a flow {flows[0]}, {flows[1]} to {flows[2]}"
    choices = {c["choice"]: c["validation_accuracy"] for c in read_json(RESULTS / "digits-40-choices.json")["choices"]}
    long, short = (statistics.mean(choices[f"batch 32, {n} steps, lr 0.06"].values()) for n in (800, 600))
    yield f"With 800 steps the validation accuracy was {100 * (long - short):.1f} points higher"
    tiny = read_json(RESULTS / "passes-8x8.json")["runs"]
    running, joint = ([100 * run["accuracy"] for run in tiny if run["passes"] == way] for way in ("running", "joint"))
    gaps = [a - b for a, b in zip(running, joint, strict=True)]
    yield f"{signed(statistics.mean(gaps), 2)} ± {statistics.stdev(gaps):.2f} points over four seeds"
    yield f"all --data digits`, {len(list((RESULTS / 'reproduce').glob('digits-40-*.json')))} runs)"


def claims_of_features() -> Iterator[str]:
    wine = sorted(of_features("NorMatch", "wine"))
    yield f"(NorMatch {wine[0]:.1f} there, {wine[1]:.1f} to {wine[-1]:.1f} on the others)"
    alone, *others = (
        statistics.mean(of_features(estimator, "CIFAR-10 features"))
        for estimator in ("LogisticRegression", "SelfTraining", "LabelSpreading", "FixMatch", "NorMatch")
    )
    yield f"features {'nothing' if max(others) <= alone else 'something'} gained over the labels alone"
    leads = [lead_of_the_default(f"{method}Classifier") for method in ("FixMatch", "NorMatch")]
    yield f"by {leads[0]:.1f} points (FixMatch) and {leads[1]:.1f} (NorMatch)"


def claims_of_the_300_epochs() -> Iterator[str]:
    run = run_of_paper("cifar10-40-shared-307200-seed0")
    final, mean, _, best = (100 * number for number in run["accuracy"].values())
    tested = percent(run["curves"]["test/accuracy"])
    trusted, confident, correct, right, sure, disputed, weight, head, flow = (
        percent(run["curves"][f"pseudo/{name}"])
        for name in (
            *("trusted", "confident", "correct", "accuracy_trusted", "accuracy_confident", "accuracy_distrusted"),
            *("weight_distrusted", "uncertainty", "uncertainty_auxiliary"),
        )
    )
    assert all((flow[step] < head[step]) == (step > 1024) for step in head)
    yield (
        f"307,200 steps: {final:.2f} % after {run['seconds'] / 60:.1f} minutes on one H200, compilation and "
        f"{len(tested)} evaluations included"
    )
    yield f"with the whole 300 epochs it ends at [{final:.2f} %]"
    yield f"The mean of its last 20 evaluations is {mean:.2f} %, the best {best:.2f}"
    yield f"rose from {tested[190464]:.1f} to {tested[196608]:.1f} % between 190,464 and 196,608"
    yield (
        f"had {tested[196608]:.1f} % while the rate was still at "
        f"{0.03 * math.cos(7 / 16 * math.pi * 196608 / 307200):.3f}"
    )
    yield (
        f"{trusted[24576]:.0f} against {confident[24576]:.0f} % after 24,576 steps, when {correct[24576]:.0f} % are "
        f"right, and {trusted[307200]:.0f} against {confident[307200]:.0f} % at the end, when "
        f"{correct[307200]:.0f} % are"
    )
    yield f"of the trusted {right[307200]:.1f} % are right at the end, of those above 0.95 {sure[307200]:.1f} %"
    yield f"(mean uncertainty at the end {flow[307200]:.1f} and {head[307200]:.1f} %)"
    yield f"they keep {weight[307200]:.0f} % of their weight, where {disputed[307200]:.0f} % of them are right"


def claims_of_shorter_runs() -> Iterator[str]:
    ways = read_json(RESULTS / "cifar10-250-ways.json")["runs"]
    end = [100 * run["result"]["accuracy"] for run in ways]
    yield f"{end[2] - end[0]:.2f} points above bfloat16 (`joint`; {end[2] - end[1]:.2f} above `shared`)"
    passes = read_json(RESULTS / "cifar10-40-passes.json")
    in_one_pass, longer = passes["runs"][0], passes["longer"]
    reached = longer["evaluations"][-1]
    yield (
        f"cut off after {longer['last_step']:,} steps, had {100 * reached['test/accuracy']:.1f} % after "
        f"{reached['step']:,}"
    )
    yield f"a run of {in_one_pass['last_step']:,} steps reached {100 * in_one_pass['accuracy']:.1f} %"
    rows = [of_cifar(trial).values() for trial in IN_TABLES_1_AND_3]
    all_of_40 = [accuracy for row in rows for accuracy in row]
    yield f"these end between {min(all_of_40):.0f} and {max(all_of_40):.0f} %"
    yield f"by up to {max(max(row) - min(row) for row in rows):.1f} points in one row"
    gains = [statistics.mean(gain(trial, "fixmatch")) for trial in ("ncue", "ncue-drop", "ncue-num")]
    yield f"above FixMatch on average, by {min(gains):.1f} to {max(gains):.1f} points"
    _, low, high = interval(gain("ncue-num", "fixmatch"))
    yield f"only for the whole of NorMatch does the interval, {low:.1f} to {high:.1f}, exclude 0"
    let_through = gain("no-stop", "ncue-num")
    yield f"costs {-statistics.mean(let_through):.1f} ± {statistics.stdev(let_through):.1f} points"
    yield "gives {:.2f}, {:.2f} and {:.2f} % with seeds 0, 1 and 2".format(*seeds_of_250())


def claims_of_brief_runs() -> Iterator[str]:
    runs = [run_of_paper(f"{BRIEF.format(trial)}-seed{seed}") for trial in IN_TABLES_1_AND_3 for seed in range(3)]
    times = [run["seconds"] for run in runs]
    yield f"in {runs[0]['steps']:,} steps and {min(times):.0f} to {max(times):.0f} s a run"
    ends = [100 * run["accuracy"]["last weights"] for run in runs]
    right = [ended(run)["pseudo/correct"] for run in runs]
    yield (
        f"end between {min(ends):.0f} and {max(ends):.0f} %, with {min(right):.0f} to {max(right):.0f} % of the "
        "pseudo-labels right"
    )
    for name in (SHORT, BRIEF):
        assert min(gain("ncue-num", "fixmatch", name)) > 0
    whole, low, high = map(signed, interval(gain("ncue-num", "fixmatch", BRIEF)))
    yield f"by {whole} points on average, where the paper has {93.41 - 87.77:.1f}"
    yield f"not enough to tell that from nothing ({low} to {high})"
    alone, variant = (list(map(signed, interval(gain(trial, "fixmatch", BRIEF)))) for trial in ("ncue", "ncue-drop"))
    yield (
        f"NCUE has {alone[0]} points ({alone[1]} to {alone[2]}) and its variant {variant[0]} ({variant[1]} to "
        f"{variant[2]}), where the paper has {92.78 - 87.77:.1f} and {91.55 - 87.77:.1f}"
    )
    assert all(
        warned.startswith("imbalance") and int(warned.split()[-1]) <= 1024 for run in runs for warned in run["warnings"]
    )
    assert all(run["warnings"] for run in runs)
    more, low, high = map(signed, interval(gain("ncue-num", "ncue", BRIEF)))
    yield f"{more} over NCUE ({low} to {high}; paper {93.41 - 92.78:.1f})"

    ncue, num, ncue_in_wrn, num_in_wrn = (
        [ended(run_of_paper(f"{name.format(trial)}-seed{seed}")) for seed in range(3)]
        for name in (BRIEF, SHORT)
        for trial in ("ncue", "ncue-num")
    )
    assert all(
        run["pseudo/uncertainty_auxiliary"] < run["pseudo/uncertainty"] for run in ncue + ncue_in_wrn + num_in_wrn
    )
    assert all(run["pseudo/uncertainty_auxiliary"] > run["pseudo/uncertainty"] for run in num)
    disputed = [100 - run["pseudo/trusted"] for run in num]
    (before,) = {f"{100 - run['pseudo/trusted']:.0f}" for run in ncue}
    yield f"disputes {min(disputed):.0f} to {max(disputed):.0f} % of the pseudo-labels at the end instead of {before} %"
    let_through, low, high = map(signed, interval(gain("no-stop", "ncue-num", BRIEF)))
    yield f"into the backbone gains {let_through} points ({low} to {high})"


def ended(run: dict[str, Any]) -> dict[str, float]:
    """The last point, in percent, of each curve of its pseudo-labels."""
    return {name: last(percent(points)) for name, points in run["curves"].items() if name.startswith("pseudo/")}


def seeds_of_250() -> list[float]:
    runs = (run_of_paper(f"cifar10-250-normatch-20480-seed{seed}") for seed in range(3))
    return [100 * run["accuracy"]["last weights"] for run in runs]


def claims_of_the_recipe() -> Iterator[str]:
    """cifar10-40-fast."""
    runs = [run_of_paper(f"cifar10-40-fast-normatch-49152-seed{seed}") for seed in range(3)]
    tested = [100 * run["accuracy"]["last weights"] for run in runs]
    (minutes,) = {f"{run['seconds'] / 60:.1f}" for run in runs}
    yield (
        f"[{statistics.mean(tested):.2f} ± {statistics.stdev(tested):.2f} %](#beyond-the-paper-minutes) of the test "
        f"images (label seeds 0 to 2) in {minutes} minutes on one H200, a first network and "
        f"{len(runs[0]['curves']['test/accuracy'])} evaluations included"
    )
    yield f"it is {94.70 - statistics.mean(tested):.2f} points short of that"
    kept = read_json(RESULTS / "cifar10-40-fast-errors.json")["runs"]
    took = [run["seconds of the whole command"] / 60 for run in kept]
    yield f"The whole command took {min(took):.1f} to {max(took):.1f} minutes"
    assert [run["accuracy"] for run in kept] == [run["accuracy"]["last weights"] for run in runs]
    yield "end at {:.2f}, {:.2f} and {:.2f} %".format(*tested)
    gains = [100 * (a - b) for run in runs for (_, b), (_, a) in [run["curves"]["test/accuracy"][-2:]]]
    yield f"In the last twelfth of their steps the runs gain {min(gains):.1f} to {max(gains):.1f} points"
    yield from claims_of_errors(kept)

    before = [read_json(RESULTS / "cifar10-40-fast-sgd" / f"seed{seed}.json") for seed in range(3)]
    tested = [100 * run["accuracy"]["last weights"] for run in before]
    times = [run["seconds"] / 60 for run in before]
    each = "({:.2f}, {:.2f} and {:.2f} with seeds 0 to 2)".format(*tested)
    mean, spread = statistics.mean(tested), statistics.stdev(tested)
    yield f"ended at {mean:.2f} ± {spread:.2f} % {each} in {min(times):.1f} to {max(times):.1f} minutes"
    freed = percent(before[1]["curves"]["test/accuracy"])
    yield f"rose from {freed[45056]:.1f} to {freed[49152]:.1f} % between 45,056 and 49,152"


def claims_of_errors(runs: list[dict[str, Any]]) -> Iterator[str]:
    """What the recipe's networks take for what; ``runs`` are those of label seeds 0 to 2."""
    tables = [run[TRUTH] for run in runs]
    first = [run["first"] for run in runs]
    assert {run["steps"] for run in first} == {7021}
    yield "had {:.1f}, {:.1f} and {:.1f} (label seeds 0 to 2".format(*(100 * run["accuracy"] for run in first))
    yield "Few birds are taken for deer, {}, {} and {} of 1,000".format(*(table[BIRD][DEER] for table in tables))
    yield f"{tables[1][HORSE][CAT]} of 1,000 horses are taken for cats"
    yield f"which knew {first[1][TRUTH][HORSE][HORSE]} of 1,000 horses, asked for no other"
    assert (runs[1]["labels_by_class"]["horse"], runs[1]["labels_by_class"]["cat"]) == (2, 2 + 5)
    right = [sum(table[k][k] for k in range(10)) / 100 for table in tables]
    right[1] += tables[1][HORSE][CAT] / 100
    yield f"would lie within {max(right) - min(right):.1f} points, at {statistics.mean(right):.1f} % on average"
    mixed = [table[CAT][DOG] + table[DOG][CAT] for table in tables]
    yield f"{min(mixed)} to {max(mixed)} of the 10,000 images are cats and dogs that are taken for each other"
    assert {table[BIRD][AIRPLANE] for table in tables} == {36, 37}
    yield f"on seed 2, {tables[2][DEER][DOG]} deer that are taken for dogs"


VARIED = ("adaptive-joint", "adaptive-lr-0.05", "adaptive-decay-1e-3")


def claims_of_the_search() -> Iterator[str]:
    with_250 = {run["choice"]: 100 * run["accuracy"] for run in searched(250)}
    yield f"is {with_250['quick-resnet'] - with_250['wrn-28-2']:.1f} points above the paper's WRN-28-2"
    yield f"ten layers is {with_250['wrn-28-2'] - with_250['wrn-10-4']:.1f} below it"
    yield f"rate of 0.1 adds {with_250['quick-resnet-lr-0.1'] - with_250['quick-resnet']:.1f} points"
    yield f"seven add {with_250['quick-resnet-ratio-3'] - with_250['quick-resnet']:.1f}, in a fifth more time"
    seeds = seeds_of_250()
    yield f"on seeds 0 to 2 longer runs with 250 labels differ by {max(seeds) - min(seeds):.1f} points"

    before = [run for run in searched(40) if not has_ops(run)]
    soft, sure, decided = (percent(run["evaluations"]) for run in before if run["steps"] > 50_000)
    quick = {run["choice"]: percent(run["evaluations"]) for run in before if run["steps"] < 50_000}
    yield f"{soft[119207]:.1f} % after 119,207, then lost {soft[119207] - soft[130048]:.1f}"
    yield f"are {quick['onehot'][20480] - quick['soft'][20480]:.1f} points ahead of soft ones after 20,480"
    yield f"ends at {sure[78336]:.1f} %, where the soft ones of row 8 had {soft[75859]:.1f} %"
    yield (
        f"{quick['onehot-strong-labels'][8530]:.1f} % after 8,530 steps, where weak augmentation gives "
        f"{quick['onehot'][8530]:.1f} %"
    )
    (run,) = (run for run in before if run["choice"] == "decided")
    at_half = min(run["pseudo-labels right, and above 0.95"], key=lambda point: abs(point[0] - 39360))
    yield f"{decided[39360]:.1f} % at half of a run of 79,872 steps, with {100 * at_half[2]:.0f} % of the"
    yield f"one-hot by and by, and ended at {decided[79872]:.1f} %"
    adaptive, more_decay = quick["adaptive"], quick["adaptive-decay-1e-3"]
    yield f"it reaches {adaptive[33792]:.1f} %, as much as one-hot pseudo-labels"
    (stopped,) = read_json(RESULTS / "cifar10-fast-choices.json")["stopped"]
    cut_off = percent(stopped["evaluations"])
    yield f"had {cut_off[49856]:.1f} % after 49,856 of its 79,872 steps and {cut_off[52480]:.1f} % after 52,480"
    yield f"are within {max(abs(last(quick[choice]) - last(adaptive)) for choice in VARIED):.1f} points of it"
    yield (
        f"{quick['contrasting'][4800]:.1f} % after 4,800 steps where NorMatch alone has {more_decay[5440]:.1f} % after "
        f"5,440, and not at the end: {last(quick['contrasting']):.1f} % against {last(more_decay):.1f} %"
    )
    yield f"from which 40 labels tell {last(quick['contrast']):.1f} %"
    started = quick["started"]
    yield f"({started[1600]:.1f} % after 1,600 steps), and ends at {last(started):.1f} %"
    most = max(map(last, quick.values()))
    yield (
        f"It has {quick['soft-then-adaptive'][19200]:.1f} % after 19,200 of its 32,768 steps and ends at {most:.1f} %, "
        "the most of all"
    )


def claims_of_what_was_tried_after_it() -> Iterator[str]:
    tried = {run["choice"]: run for run in searched(250)}
    reached = {choice: 100 * run["accuracy"] for choice, run in tried.items()}
    recipe, ops = (tried[choice] for choice in ("soft-then-adaptive", "three-ops"))
    at_recipe, at_ops, at_both, deep = (
        reached[c] for c in ("soft-then-adaptive", "three-ops", "late-384-three-ops-decay-1e-3", "wrn-28-2-three-ops")
    )
    averaged, third = (percent(run["evaluations"]) for run in (recipe, ops))
    right = {step: 100 * share for step, share, _ in recipe["pseudo-labels right, and above 0.95"]}
    near = min(right, key=lambda step: abs(step - 3328))
    yield f"lag behind: {reached['remembered']:.1f} %"
    yield f"cost {at_recipe - max(reached[choice] for choice in ('cutmix', 'mixup')):.1f} points"
    yield (
        f"after 3,328 steps they tell {averaged[3328]:.1f} % of the held-out images, when {right[near]:.0f} % of the "
        "network's own pseudo-labels are right"
    )
    yield f"costs {at_ops - reached['together']:.1f} points against three ops alone"
    yield (
        f"{third[6656]:.1f} % against {averaged[6656]:.1f} after 6,656 steps, and at the end by "
        f"{at_ops - at_recipe:.1f} points"
    )
    yield f"run ends at {at_both:.1f} %, {at_both - at_recipe:.1f} above the"
    yield (
        f"three ops ends at {deep:.1f} %, {deep - at_ops:.1f} points above `quick-resnet` after as many steps, which "
        f"take it {ops['steps_per_second'] / tried['wrn-28-2-three-ops']['steps_per_second']:.1f} times as long"
    )

    ceilings = {(run["choice"], run["steps"]): 100 * run["accuracy"] for run in searched(45_000)}
    narrow = ceilings["all", 10240]
    assert max(ceilings[choice, 10240] for choice in ("all-222", "all-331")) < narrow
    wider = max(accuracy for (choice, _), accuracy in ceilings.items() if choice.startswith("all-late"))
    yield f"`quick-resnet` has {narrow:.1f} % after 10,240 steps and {ceilings['all', 20480]:.1f} % after 20,480"
    yield f"More channels raise the {narrow:.1f} % by {wider - narrow:.1f} points at most"
    yield f"WRN-28-2 has {ceilings['all-wrn-28-2', 10240]:.1f} % after 10,240 steps"
    yield f"instead of four at full resolution, {ceilings['all-wrn-144', 10240]:.1f} %"

    caught, afresh, shallow = (run for run in searched(40) if has_ops(run) and TRUTH not in run)
    course = percent(caught["evaluations"])
    yield f"after 49,920 steps it had {course[49920]:.1f} %, then fell to {course[65280]:.1f}, and ended at"
    yield f"ended at {last(course):.1f}"
    _, share_right, share_sure = caught["pseudo-labels right, and above 0.95"][-1]
    yield (
        f"In the end {100 * share_sure:.0f} % of its pseudo-labels are above 0.95, and {100 * share_right:.0f} % are "
        "right"
    )
    yield f"WRN-28-2 reaches {100 * afresh['accuracy']:.1f} % in 34,816 steps"
    yield f"`quick-resnet` has {100 * shallow['accuracy']:.1f} % after 32,768"


def claims_of_succession() -> Iterator[str]:
    runs = [run for run in searched(40) if TRUTH in run and "suggested by" not in run and run["seed"] < 102]
    first, second, again = (run for run in runs if (run["choice"], run["steps"]) == ("three-ops", 40_960))
    heir, second_heir = (run for run in runs if run["choice"] == "successor-adaptive-early")
    courses = [percent(run["evaluations"]) for run in (heir, second_heir)]
    for course in courses:
        steps = sorted(course)
        assert [round(course[steps[len(steps) * n // 3]]) for n in (1, 2)] == [87, 90]
    told = [[100 * right for right in run["told, right, and of the surest"]] for run in (heir, second_heir)]
    yield (
        f"frees it: {last(courses[0]):.1f} % in {minutes_of(first) + minutes_of(heir):.1f} minutes of steps, its "
        f"predecessor's included, which ended at {100 * first['accuracy']:.1f} %"
    )
    yield (
        f"took {first[TRUTH][0][2]} of 500 held-out airplanes for birds, and {first[TRUTH][2][0]} birds for "
        f"airplanes; of its pseudo-labels {told[0][0]:.1f} % are right, of those that it passed on {told[0][1]:.1f} %. "
        f"In row 4 it is {heir[TRUTH][0][2]} and {heir[TRUTH][2][0]}."
    )
    before = 100 * second["accuracy"]
    surpassed = min(step for step, reached in courses[1].items() if reached > before)
    yield (
        f"the start is better, {before:.1f} %, with {told[1][1]:.1f} % of what is passed on right, and the end is not: "
        f"WRN-28-2 needs {surpassed:,} of its steps to be better than its predecessor, and gains "
        f"{last(courses[1]) - before:.1f} points in {minutes_of(second_heir):.1f} minutes"
    )

    same, higher, lower, lowest, decay = (
        next(run for run in runs if run["choice"] == f"successor-adaptive{change}")
        for change in ("", "-lr-0.2", "-lr-0.05", "-lr-0.03", "-decay-1e-3")
    )
    yield (
        f"worse than the {100 * same['accuracy']:.1f} % of 0.1: {100 * higher['accuracy']:.1f} % with 0.2, "
        f"{100 * lower['accuracy']:.1f} with 0.05, {100 * lowest['accuracy']:.1f} with 0.03, and "
        f"{100 * decay['accuracy']:.1f} with twice the weight decay"
    )
    yield f"it takes {lowest[TRUTH][0][2]} of 500 airplanes for birds, at 0.1 {same[TRUTH][0][2]}."
    alone = runs[-1]
    assert (alone["choice"], alone["seed"]) == ("three-ops", first["seed"])
    yield (
        f"alone ends at {100 * alone['accuracy']:.1f} % after {alone['steps']:,} steps on seed 100, "
        f"{minutes_of(alone):.1f} minutes (row 4 of the table before), "
        f"{last(courses[0]) - 100 * alone['accuracy']:.1f} points below its successor's "
        f"{minutes_of(first) + minutes_of(heir):.1f}"
    )
    assert (again["seed"], again["changes"]) == (second["seed"], second["changes"])
    assert len(runs) == 12
    as_deer = [run[TRUTH][2][4] for run in runs]
    yield f"{min(as_deer)} to {max(as_deer)} of the 500 held-out birds are taken for deer"
    birds = read_json(RESULTS / "cifar10-birds.json")
    assert [len(one) for one in birds["by each"]] == [run[TRUTH][2][4] for run in (first, again)]
    yield f"{len(birds['by both'])} of them by both networks of rows 1 and 9, which had different labels"
    twenty = birds["wrong of 20 suggestions of each: class, guess, and how many of 20,000 are alike"]
    assert [len(wrong) for wrong in twenty] == [4, 6]
    stand_for = [sum(alike for _, _, alike in wrong) for wrong in twenty]
    ((_, _, alike),) = (wrong for wrong in twenty[1] if wrong[:2] == [2, 4])
    yield (
        f"row 9's six have a wrong name, and stand for {stand_for[1]} of 20,000 images; one is a bird that it takes "
        f"for a deer, and stands for {alike}. Of row 1's four have one, and stand for {stand_for[0]}."
    )
    seen = birds["such birds among 20 suggestions of each, 6 times"]
    found = [sum(many > 0 for many in one) for one in seen]
    assert {len(one) for one in seen} == {6}
    images, alike = birds["training images, and birds of these that both take for deer"]
    by_chance = 100 * (1 - (1 - alike / images) ** 20)
    yield (
        f"{alike} of the {images:,} training images are such birds. One is among 20 suggestions in {found[0]} of six "
        f"cases for row 1's network, in {found[1]} of six for row 9's, with other first clusters each time; among 20 "
        f"images by chance it would be in {by_chance:.0f} % of cases."
    )
    cats_and_dogs = [(run[TRUTH][3][5] + run[TRUTH][5][3]) / 50 for run in runs]
    yield f"taken for each other are {min(cats_and_dogs):.1f} to {max(cats_and_dogs):.1f} % of all images"


def claims_of_suggested() -> Iterator[str]:
    def of(seed: int, labels: int, steps: int, by: str | None = None) -> list[dict[str, Any]]:
        which = "three-ops", seed, steps, by
        fields = "choice", "seed", "steps", "suggested by"
        return [run for run in searched(labels) if tuple(map(run.get, fields)) == which]

    def reached(runs: list[dict[str, Any]]) -> str:
        return " and ".join(f"{100 * run['accuracy']:.1f}" for run in runs)

    seeds = 100, 101, 102
    first = [of(seed, 20, 24_576)[0] for seed in seeds]
    chance = [of(seed, 40, 40_960) for seed in seeds]
    half = [of(seed, 40, 40_960, f"three-ops-20-24576-seed{seed}")[0] for seed in seeds]
    (longer,) = of(102, 40, 81_920, "three-ops-20-24576-seed102")
    yield f"{reached(half[:1])} % against {reached(chance[0])}, {reached(half[1:2])} against {reached(chance[1])}"
    yield f"have {reached(first[:2])} %"
    (unlucky,) = chance[2]
    best = half[2]
    assert best["accuracy"] > max(run["accuracy"] for runs in chance for run in runs)
    yield (
        f"has {reached(first[2:])} %, one of its suggestions is an emu, and afterwards {best[TRUTH][2][4]} birds are "
        f"taken for deer instead of {unlucky[TRUTH][2][4]}"
    )
    yield (
        f"ends at {reached([best])} %, {100 * (best['accuracy'] - unlucky['accuracy']):.1f} points above 40 labels by "
        f"chance, with which {unlucky[TRUTH][7][3]} of 500 horses are taken for cats"
    )
    spent = minutes_of(first[2]) + minutes_of(longer)
    yield f"{reached([longer])} % in {spent:.1f} minutes of steps, those of the first network included"
    gains = [
        100 * (run["accuracy"] - statistics.mean(other["accuracy"] for other in others))
        for run, others in zip(half, chance, strict=True)
    ]
    mean, low, high = map(signed, interval(gains))
    yield f"{mean} points on average of the three label seeds (95 % interval {low} to {high}: not distinguishable)"


def claims_of_optimisers() -> Iterator[str]:
    runs = read_json(RESULTS / "cifar10-muon.json")["runs"]
    by_chance = [run for run in runs if "suggested by" not in run]

    def of(labels: int, choice: str, seed: int = 100) -> dict[str, Any]:
        (run,) = (r for r in by_chance if (r["labels"], r["choice"], r["seed"]) == (labels, f"three-ops{choice}", seed))
        return dict(run)

    def reached(labels: int, choice: str, seed: int = 100) -> float:
        return float(100 * of(labels, choice, seed)["accuracy"])

    muon, wide, wider = "+optim.muon=0.01", "+backbone=quick-resnet-late-512", "+backbone=quick-resnet-128-384-512"
    sgd, low, high = (reached(250, choice) for choice in ("", "+optim.muon=0.005", "+optim.muon=0.03"))
    (twice,) = (run for run in searched(250) if run["choice"] == "three-ops")
    assert twice["steps"] == 2 * of(250, muon)["steps"]
    at = reached(250, muon)
    yield f"has {at:.1f} % after 10,240 steps, {at - sgd:.1f} points more than with SGD, which takes twice the steps"
    yield f"to reach {100 * twice['accuracy']:.1f} %"
    assert 1.15 < of(250, "")["steps_per_second"] / of(250, muon)["steps_per_second"] < 1.25
    yield f"Rates of 0.005 and 0.03 are {at - low:.1f} and {at - high:.1f} points below 0.01"
    assert max(run["accuracy"] for run in searched(250)) < of(250, muon + wide)["accuracy"]
    yield f"{reached(250, muon + wide):.1f} % with 64, 256 and 512 channels, {reached(250, muon + wider):.1f} % with"
    deep = {run["choice"]: 100 * run["accuracy"] for run in searched(250)}["wrn-28-2-three-ops"]
    yield f"{reached(250, muon + '+backbone=wrn-28-2'):.1f} %, where SGD had {deep:.1f} after twice the steps"
    longer, early = (percent(run["evaluations"]) for run in read_json(RESULTS / "cifar10-muon.json")["stopped"])
    yield f"stood at {last(longer):.1f} % after {max(longer):,} of 32,768 steps"
    yield f"where 20,480 steps ended at {reached(40, muon + wide):.1f} %"
    yield f"{last(early):.1f} % after {max(early):,} of 16,384 steps"
    seeds = [of(40, muon + wider, seed) for seed in (100, 101)]
    first, second = (f"{100 * run['accuracy']:.1f} % on seed {run['seed']}" for run in seeds)
    assert {f"{minutes_of(run):.1f}" for run in seeds} == {"3.4"}
    yield f"has {first} and {second} in 3.4 minutes of steps each"
    table = [run[TRUTH] for run in seeds]
    yield f"{table[1][BIRD][DEER]} of 500 birds are taken for deer; on seed 100 it is still {table[0][BIRD][DEER]}"
    errors = sum(map(sum, table[1])) - sum(table[1][k][k] for k in range(10))
    both = table[1][CAT][DOG] + table[1][DOG][CAT]
    yield f"Of the {errors} errors left on seed 101, {both} are cats and dogs that are taken for each other"
    yield from claims_of_rates(of, wider)
    yield from claims_of_balance(of, wider)
    yield from claims_of_advised(of, wider)


def claims_of_rates(of: Callable[..., dict[str, Any]], wider: str) -> Iterator[str]:
    slow = of(40, f"+optim.muon=0.007{wider}")
    seen, table = percent(slow["evaluations"]), slow[TRUTH]
    yield f"{slow['steps']:,} steps on seed 100, {minutes_of(slow):.1f} minutes, end at {last(seen):.1f} %"
    yield f"has {seen[16384]:.1f} % after 16,384 steps and gains next to nothing after 28,672"
    assert abs(last(seen) - seen[28672]) < 0.3
    yield f"{table[AIRPLANE][BIRD]} of 500 airplanes for birds and {table[BIRD][AIRPLANE]} birds for airplanes"
    yield f"{table[CAT][DOG]} cats for dogs and {table[DOG][CAT]} dogs for cats"
    _, right, above = slow["pseudo-labels right, and above 0.95"][-1]
    yield f"{100 * above:.0f} % of its pseudo-labels are above 0.95, and {100 * right:.0f} % are right"

    rates = {rate: of(250, f"+optim.muon={rate}{wider}") for rate in (0.007, 0.01, 0.015)}
    scores = [run["accuracy"] for run in rates.values()]
    assert scores == sorted(scores)
    best = rates[0.015]
    yield f"0.015 the best, {100 * best['accuracy']:.1f} % in {minutes_of(best):.1f} minutes"
    high, other = (of(40, f"+optim.muon=0.02{wider}", seed) for seed in (100, 101))
    first, second = (percent(run["evaluations"]) for run in (high, other))
    yield f"{last(first):.1f} % on seed 100 and {last(second):.1f} % on seed 101 after 20,480 steps"
    yield f"{last(first) - first[17920]:.1f} and {last(second) - second[17920]:.1f} points in the last eighth"
    lower = [of(40, f"+optim.muon=0.01{wider}", seed) for seed in (100, 101)]
    gained = (last(seen) - seen[21504] for seen in (percent(run["evaluations"]) for run in lower))
    yield "those of 0.01 gained {:.1f} and {:.1f}".format(*gained)
    yield f"(0.01: {lower[0][TRUTH][AIRPLANE][BIRD]} and {lower[0][TRUTH][BIRD][AIRPLANE]})"
    yield f"on seed 101 it is {100 * lower[1]['accuracy'] - last(second):.1f} points below 0.01"
    yield f"it takes {high[TRUTH][AIRPLANE][BIRD]} airplanes for birds and {high[TRUTH][BIRD][AIRPLANE]} birds for"
    highest = of(40, f"+optim.muon=0.03{wider}")
    half = next(right for step, right, _ in highest["pseudo-labels right, and above 0.95"] if step >= 10_240)
    yield f"{100 * half:.0f} % of its pseudo-labels are right at half of it"
    yield f"and it ends at {100 * highest['accuracy']:.1f} %"

    runs = {run["choice"]: run for run in read_json(RESULTS / "cifar10-muon.json")["runs"] if run["labels"] == 250}
    more, fewer = (
        runs[f"{choice}{wider}"] for choice in ("four-ops+optim.muon=0.01", "three-ops+optim.muon=0.01+ratio=3")
    )
    yield f"({100 * more['accuracy']:.1f} % against {100 * rates[0.01]['accuracy']:.1f} with 250 labels)"
    assert fewer["steps"] == 2 * rates[0.01]["steps"]
    yield f"twice the steps: {100 * fewer['accuracy']:.1f} % in {minutes_of(fewer):.1f} minutes"


def claims_of_balance(of: Callable[..., dict[str, Any]], wider: str) -> Iterator[str]:
    long = of(40, f"+optim.muon=0.015{wider}")
    yield f"0.015 has {100 * long['accuracy']:.1f} % after {long['steps']:,} steps on seed 100"
    yield f"with {long[TRUTH][BIRD][DEER]} ostriches among the deer"
    shared, split = (of(250, f"+optim.muon=0.015{wider}{more}") for more in ("", "+settings.passes=split"))
    less = 100 * (shared["accuracy"] - split["accuracy"])
    yield f"`shared` has {100 * split['accuracy']:.1f} % at 0.015, {less:.1f} points less"
    both = [of(40, f"+optim.muon=0.015+method=normatch-balanced{wider}", seed) for seed in (100, 101)]
    yield "{} and {} of 500 birds are still taken for deer".format(*(run[TRUTH][BIRD][DEER] for run in both))
    (cats,) = {run[TRUTH][DEER][CAT] for run in both}
    yield f"and {cats} deer are taken for cats on each seed, where the run of 40,960 steps has {long[TRUTH][DEER][CAT]}"
    yield "These runs end at {:.1f} and {:.1f} %".format(*(100 * run["accuracy"] for run in both))
    for run in both:
        frequencies = [sum(row[k] for row in run[TRUTH]) for k in range(10)]
        assert max(abs(n - 500) for n in frequencies) < 20  # "The classes are in balance then"


def claims_of_advised(of: Callable[..., dict[str, Any]], wider: str) -> Iterator[str]:
    runs = read_json(RESULTS / "cifar10-muon.json")["runs"]
    chosen = sorted((run for run in runs if "suggested by" in run), key=lambda run: int(run["seed"]))
    first = [of(20, f"+optim.muon=0.015{wider}", run["seed"]) for run in chosen]
    assert [run["seed"] for run in chosen] == [100, 101]

    def pair(values: Iterable[float], form: str = "{:.1f}") -> str:
        return " and ".join(form.format(value) for value in values)

    yield f"SGD's did, {pair(100 * run['accuracy'] for run in first)} %"
    for run in chosen:
        suggestions = run["suggestions: class, guess, and how many are alike"]
        assert [kind for kind, *_ in suggestions].count(BIRD) == 2  # which were looked at
    yield f"and then {chosen[0][TRUTH][BIRD][DEER]} birds of 500 are taken for deer"
    assert chosen[1][TRUTH][BIRD][DEER] == of(40, f"+optim.muon=0.01{wider}", 101)[TRUTH][BIRD][DEER]
    yield f"and it is {chosen[1][TRUTH][BIRD][DEER]}, as at 0.01 with labels by chance"
    yield f"end at {pair(100 * run['accuracy'] for run in chosen)} % after 20,480 steps"
    high, low = ([of(40, f"+optim.muon={rate}{wider}", run["seed"]) for run in chosen] for rate in (0.02, 0.01))
    over_high, over_low = (
        [100 * (run["accuracy"] - other["accuracy"]) for run, other in zip(chosen, others, strict=True)]
        for others in (high, low)
    )
    yield f"{pair(over_high)} points above labels by chance at 0.02 in as many steps"
    assert {run["steps"] for run in (*high, *chosen)} == {20_480}
    yield f"against 0.01 in 24,576 it is {over_low[0]:.1f} points on seed 100, and level on seed 101"
    assert abs(over_low[1]) < 0.05
    assert {f"{minutes_of(a) + minutes_of(b):.1f}" for a, b in zip(first, chosen, strict=True)} == {"4.0"}
    errors = [5000 - sum(run[TRUTH][k][k] for k in range(10)) for run in chosen]
    mixed = [run[TRUTH][CAT][DOG] + run[TRUTH][DOG][CAT] for run in chosen]
    yield f"Of the {pair(errors, '{}')} errors left, {pair(mixed, '{}')} are cats and dogs"
    (all_labels,) = (run for run in runs if run["choice"] == f"all+optim.muon=0.01{wider}")
    table = all_labels[TRUTH]
    left = 5000 - sum(table[k][k] for k in range(10))
    yield f"with all labels it is {table[CAT][DOG] + table[DOG][CAT]} of {left}"
    yield f"all images this network has {100 * all_labels['accuracy']:.1f} % after 5,120 steps"


def claims_of_small_pictures() -> Iterator[str]:
    runs = read_json(RESULTS / "small-pictures.json")["runs"]

    def of(labels: int, steps: int, way: str) -> list[dict[str, Any]]:
        return [r for r in runs if (r["labels"], r["steps"], r["way"]) == (labels, steps, way)]

    def gains(labels: int, steps: int, way: str, than: str) -> list[float]:
        pairs = zip(of(labels, steps, way), of(labels, steps, than), strict=True)
        return [100 * (a["accuracy"] - b["accuracy"]) for a, b in pairs]

    ahead = [statistics.mean(gains(labels, steps, "muon", "sgd")) for labels in (100, 400) for steps in (256, 1024)]
    yield f"Muon is ahead by {min(ahead):.1f} to {max(ahead):.1f} points on average"
    pairs = [p for labels in (100, 400) for p in zip(of(labels, 256, "muon"), of(labels, 1024, "sgd"), strict=True)]
    assert len(pairs) == 6
    assert all(quick["seed"] == slow["seed"] and quick["accuracy"] > slow["accuracy"] for quick, slow in pairs)
    assert all(quick["seconds"] < slow["seconds"] / 3 for quick, slow in pairs)
    yield "256 steps with it are more accurate than 1,024 by SGD alone, with each of the six draws of labels"
    assert {(run["way"], run["muon"]) for run in runs} == {
        ("sgd", 0.0),
        *((way, rate) for way in ("muon", "split") for rate in (0.05, 0.1)),
    }
    assert {(run["way"], run["passes"]) for run in runs} == {("sgd", "shared"), ("muon", "shared"), ("split", "split")}

    few, many = ([gain for steps in (256, 1024) for gain in gains(n, steps, "split", "muon")] for n in (100, 400))
    yield f"with 100 labels from {signed(min(few))} to {max(few):.1f} points"
    assert max(many) < 0
    yield f"with 400 it is {-max(many):.1f} to {-min(many):.1f} behind on each"


def claims_of_asked() -> Iterator[str]:
    runs = read_json(RESULTS / "chosen-pictures.json")["runs"]
    few, many = (
        [
            100 * (after["accuracy"] - before["accuracy"])
            for before in runs
            for after in runs
            if (before["labels"], before["way"], after["way"]) == (labels, "chance", "suggested")
            and (after["labels"], after["seed"]) == (labels, before["seed"])
        ]
        for labels in (100, 400)
    )
    assert len(few) == len(many) == 3
    for gains, labels in ((few, 100), (many, 400)):
        mean, low, high = interval(gains)
        yield f"{signed(mean)} points with {labels} labels (95 % interval {signed(low)} to {signed(high)})"


def claims_of_fits() -> Iterator[str]:
    runs = read_json(RESULTS / "fits.json")["runs"]
    short = "sgd, as many steps"

    def scores(labels: int, way: str) -> list[float]:
        return [100 * run["accuracy"] for run in runs if (run["labels"], run["way"]) == (labels, way)]

    def of(labels: int, way: str) -> str:
        each = scores(labels, way)
        return f"{statistics.mean(each):.1f} ± {statistics.stdev(each):.1f}"

    yield f"with 20 labels {of(20, 'default')} % against {of(20, 'sgd')}"
    yield f"with 40 {of(40, 'default')} against {of(40, 'sgd')}"
    quick, slow = ([run["seconds"] for run in runs if run["way"] == way] for way in ("default", "sgd"))
    yield f"in {min(quick):.0f} to {max(quick):.0f} s a fit instead of {min(slow):.0f} to {max(slow):.0f}"
    assert {run["steps"] for run in runs if run["way"] in ("default", short)} == {256}
    yield f"256 by SGD give {of(20, short)} and {of(40, short)}"
    (few, low, high), (more, low_more, high_more) = (
        interval([a - b for a, b in zip(scores(labels, "default"), scores(labels, short), strict=True)])
        for labels in (20, 40)
    )
    yield f"{few:.1f} points with 20 labels (95 % interval {signed(low)} to {high:.1f})"
    yield f"{more:.1f} with 40 ({low_more:.1f} to {high_more:.1f})"


def claims_of_few_labels() -> Iterator[str]:
    runs = read_json(RESULTS / "digits-few-labels.json")["runs"]

    def of(labels: int, way: str, step: int = 600) -> list[float]:
        mine = (run for run in runs if (run["labels"], run["way"]) == (labels, way))
        return [100 * dict(run["evaluations"])[step] for run in mine]

    def mean(labels: int, way: str, step: int = 600) -> str:
        return f"{statistics.mean(of(labels, way, step)):.1f}"

    def spread(labels: int, way: str, step: int = 600) -> str:
        return f"{statistics.stdev(of(labels, way, step)):.1f}"

    plain, likened, successor, twice = (
        *("normatch", "normatch-likened", "normatch-successor"),
        "normatch, twice the steps",
    )
    yield (
        f"with 10 labels {mean(10, likened, 200)} % against {mean(10, plain, 200)} after 200 steps, and not in the "
        f"end: {mean(10, likened)} ± {spread(10, likened)} % against {mean(10, plain)} ± {spread(10, plain)}; with 20 "
        f"labels {mean(20, likened)} against {mean(20, plain)}, with 40 {mean(40, likened)} against {mean(40, plain)}"
    )
    yield (
        f"the successor ends at {mean(10, successor)} ± {spread(10, successor)} % with 10 labels, and one run of 1,200 "
        f"steps at {mean(10, twice, 1200)} ± {spread(10, twice, 1200)}; with 20 labels at {mean(20, successor)} "
        f"against {mean(20, twice, 1200)}, with 40 at {mean(40, successor)} against {mean(40, twice, 1200)}"
    )


def claims_of_which_digits_to_label() -> Iterator[str]:
    runs = read_json(RESULTS / "digits-which-labels.json")["runs"]

    def over_each_class(way: str, labels: int) -> list[float]:
        """Points above as many of each class, of the seeds that have both."""
        of_way, base = (
            {run["seed"]: run["accuracy"] for run in runs if (run["way"], run["labels"]) == (one, labels)}
            for one in (way, "each class")
        )
        return [100 * (of_way[seed] - base[seed]) for seed in base if of_way[seed] is not None]

    lacking = {
        way: sum(run["accuracy"] is None for run in runs if (run["way"], run["labels"]) == (way, 20))
        for way in ("chance", "kinds")
    }
    assert lacking == {"chance": 6, "kinds": 0}
    one_each = over_each_class("kinds", 10)
    assert len(one_each) == 5
    yield f"is {-statistics.mean(one_each):.1f} points below one of each class by chance (the five seeds that have"
    assert all(abs(statistics.mean(over_each_class("kinds", labels))) < 0.1 for labels in (20, 40))
    suggested, disputed = "half each class, half suggested", "half each class, half disputed"
    ends = [interval(over_each_class(suggested, labels)) for labels in (20, 40)]
    yield (
        f"suggestions of a run with half of the labels are {ends[0][0]:.1f} points above as many of each class by "
        f"chance with 20 labels (95 % interval of the mean {ends[0][1]:.1f} to {ends[0][2]:.1f}), and "
        f"{ends[1][0]:.1f} with 40 ({signed(ends[1][1])} to {ends[1][2]:.1f})"
    )
    assert [sum(more < 0 for more in over_each_class(suggested, labels)) for labels in (20, 40)] == [1, 0]
    (few, low, high), (many, low_many, high_many) = (interval(over_each_class("two rounds", n)) for n in (20, 40))
    yield f"{few:.1f} points above chance with 20 labels ({signed(low)} to {high:.1f})"
    yield f"{many:.1f} with 40 ({signed(low_many)} to {high_many:.1f})"
    fewer, more = (statistics.mean(over_each_class(disputed, labels)) for labels in (20, 40))
    yield f"disputed digits {-fewer:.1f} below with 20, and {more:.1f} above with 40"


def claims_of_how_to_ask() -> Iterator[str]:
    runs = read_json(RESULTS / "digits-how-to-ask.json")["runs"]

    def over(way: str, base: str = "kinds") -> tuple[float, float, float]:
        found, others = ([100 * run["accuracy"] for run in runs if run["way"] == one] for one in (way, base))
        assert len(found) == 12
        return interval([a - b for a, b in zip(found, others, strict=True)])

    mean, low, high = over("kinds", "chance")
    yield f"ahead of chance again, by {mean:.1f} points ({low:.1f} to {high:.1f})"
    finer, covering, doubted, twice = map(over, ("finer kinds", "covering", "covering, in doubt", "kinds, twice"))
    assert finer[2] < 0
    assert covering[2] < 0
    yield f"are worse than that, by {-finer[0]:.1f} and {-covering[0]:.1f} points"
    yield f"those in doubt is level ({signed(doubted[1])} to {doubted[2]:.1f})"
    yield f"gains {twice[0]:.1f} points, which is not distinguishable ({signed(twice[1])} to {twice[2]:.1f})"


CLAIMS = (
    claims_of_digits,
    claims_of_which_digits_to_label,
    claims_of_how_to_ask,
    claims_of_features,
    claims_of_the_300_epochs,
    claims_of_shorter_runs,
    claims_of_brief_runs,
    claims_of_the_recipe,
    claims_of_the_search,
    claims_of_what_was_tried_after_it,
    claims_of_succession,
    claims_of_suggested,
    claims_of_optimisers,
    claims_of_small_pictures,
    claims_of_asked,
    claims_of_fits,
    claims_of_few_labels,
)
"""What the page says in words of numbers that no table has, each made anew from its file."""


@pytest.mark.parametrize("claim", [claim for claims in CLAIMS for claim in claims()])
def test_its_words_say_what_the_files_say(claim: str) -> None:
    page = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    assert claim in " ".join(page.split())
