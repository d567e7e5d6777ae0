"""The page of results is what its files say."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy.stats import t

from normatch.files import read_json
from tests.docs.scripts import BENCHMARKS, load_script

PROJECT = Path(__file__).parents[2]
RESULTS = PROJECT / "benchmarks" / "results"


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


def of_cifar(trial: str) -> dict[int, float]:
    """The accuracy of each seed with 40 labels."""
    files = (RESULTS / "reproduce").glob(f"cifar10-40-{trial}-10240-seed*.json")
    found = (read_json(file) for file in files)
    return {run["seed"]: 100 * run["accuracy"]["last weights"] for run in found}


def gain(trial: str, over: str) -> list[float]:
    mine, base = of_cifar(trial), of_cifar(over)
    return [mine[seed] - base[seed] for seed in mine if seed in base]


def above(first: list[float], second: list[float]) -> tuple[str, str, str]:
    mean, low, high = interval([a - b for a, b in zip(first, second, strict=True)])
    return signed(mean), signed(low), signed(high)


def last(evaluations: dict[int, float]) -> float:
    return evaluations[max(evaluations)]


def minutes_of(run: dict[str, Any]) -> float:
    """Of its steps and evaluations, without the start."""
    return float(run["steps"] / run["steps_per_second"] / 60)


def has_ops(run: dict[str, Any]) -> bool:
    """Whether it is a run of the search with other strong views: those with 40 labels came after the recipe."""
    return "augment.ops" in run["changes"]


TWICE = "normatch, twice the steps"
VARIED = ("adaptive-joint", "adaptive-lr-0.05", "adaptive-decay-1e-3")


def claims() -> list[str]:
    """What the page says in words of numbers that no table has, each made anew from its file."""
    spreading, fixmatch = (above(of_digits("normatch"), of_digits(other)) for other in ("LabelSpreading", "fixmatch"))
    ncue = above(of_paper("ncue"), of_paper("fixmatch"))
    let_in, flows = (above(of_paper(trial), of_paper("ncue-num")) for trial in ("no-stop", "nfc-nfc"))
    choices = {c["choice"]: c["validation_accuracy"] for c in read_json(RESULTS / "digits-40-choices.json")["choices"]}
    long, short = (statistics.mean(choices[f"batch 32, {n} steps, lr 0.06"].values()) for n in (800, 600))
    tiny = read_json(RESULTS / "passes-8x8.json")["runs"]
    running, joint = ([100 * run["accuracy"] for run in tiny if run["passes"] == way] for way in ("running", "joint"))
    gaps = [a - b for a, b in zip(running, joint, strict=True)]
    passes = read_json(RESULTS / "cifar10-40-passes.json")
    in_one_pass, longer = passes["runs"][0], passes["longer"]
    reached = longer["evaluations"][-1]
    whole = read_json(RESULTS / "reproduce" / "cifar10-40-shared-307200-seed0.json")
    final, mean, _, best = (100 * number for number in whole["accuracy"].values())
    tested = dict(whole["curves"]["test/accuracy"])
    trusted, confident, correct, right, sure, disputed, weight, head, flow = (
        {step: 100 * value for step, value in whole["curves"][f"pseudo/{name}"]}
        for name in (
            *("trusted", "confident", "correct", "accuracy_trusted", "accuracy_confident", "accuracy_distrusted"),
            *("weight_distrusted", "uncertainty", "uncertainty_auxiliary"),
        )
    )
    assert all((flow[step] < head[step]) == (step > 1024) for step in head)
    ways = read_json(RESULTS / "cifar10-250-ways.json")["runs"]
    end = [100 * run["result"]["accuracy"] for run in ways]
    rows = [of_cifar(trial).values() for trial in ("fixmatch", "ncue", "ncue-drop", "ncue-num", "no-stop")]
    all_of_40 = [accuracy for row in rows for accuracy in row]
    gains = [statistics.mean(gain(trial, "fixmatch")) for trial in ("ncue", "ncue-drop", "ncue-num")]
    let_through = gain("no-stop", "ncue-num")
    with_250 = (read_json(RESULTS / "reproduce" / f"cifar10-250-normatch-20480-seed{seed}.json") for seed in range(3))
    seeds_of_250 = [100 * run["accuracy"]["last weights"] for run in with_250]
    search = read_json(RESULTS / "cifar10-fast-choices.json")
    fast = search["runs"]
    in_minutes = {run["choice"]: 100 * run["accuracy"] for run in fast if run["labels"] == 250}
    of_40 = [run for run in fast if run["labels"] == 40 and not has_ops(run)]
    with_ops = [run for run in fast if run["labels"] == 40 and has_ops(run)]
    long_run, sure_run, decided = (dict(run["evaluations"]) for run in of_40 if run["steps"] > 50_000)
    (soft_at_first,) = (run for run in fast if run["choice"] == "decided")
    sure_then = min(soft_at_first["pseudo-labels right, and above 0.95"], key=lambda point: abs(point[0] - 39360))[2]
    (cut_off,) = (dict(run["evaluations"]) for run in search["stopped"])
    quick = {run["choice"]: dict(run["evaluations"]) for run in of_40 if run["steps"] < 50_000}
    soft_first = quick["soft-then-adaptive"]
    in_six = [read_json(RESULTS / "reproduce" / f"cifar10-40-fast-normatch-98304-seed{seed}.json") for seed in range(3)]
    tested_in_six = [100 * run["accuracy"]["last weights"] for run in in_six]
    minutes = [run["seconds"] / 60 for run in in_six]
    varied = {run["choice"]: run for run in fast if run["labels"] == 250}
    recipe, ops, both = (varied[c] for c in ("soft-then-adaptive", "three-ops", "late-384-three-ops-decay-1e-3"))
    averaged, third = (dict(run["evaluations"]) for run in (recipe, ops))
    own_right = {step: right for step, right, _ in recipe["pseudo-labels right, and above 0.95"]}
    near = min(own_right, key=lambda step: abs(step - 3328))
    ceilings = {(run["choice"], run["steps"]): 100 * run["accuracy"] for run in fast if run["labels"] == 45_000}
    narrow = ceilings["all", 10240]
    wider = max(reached for (choice, _), reached in ceilings.items() if choice.startswith("all-late"))
    pairs = [ceilings[choice, 10240] for choice in ("all-222", "all-331")]
    assert max(pairs) < narrow
    deep = varied["wrn-28-2-three-ops"]
    caught, afresh, shallow = ({step: 100 * told for step, told in run["evaluations"]} for run in with_ops[:3])
    teachers = {run["seed"]: run for run in with_ops[3:] if run["choice"] == "three-ops"}
    heirs = {run["seed"]: run for run in with_ops[3:] if run["choice"] == "successor-adaptive-early"}
    courses = {seed: {step: 100 * told for step, told in run["evaluations"]} for seed, run in heirs.items()}
    surpassed = min(step for step, told in courses[101].items() if told > 100 * teachers[101]["accuracy"])
    passed_on = {seed: [100 * right for right in run["told, right, and of the surest"]] for seed, run in heirs.items()}
    mistaken = [run["confusion: rows are the truth"] for run in (teachers[100], heirs[100])]
    for course in courses.values():
        steps = sorted(course)
        assert [round(course[steps[len(steps) * n // 3]]) for n in (1, 2)] == [87, 90]
    believed = with_ops[0]["pseudo-labels right, and above 0.95"][-1]
    freed = {step: 100 * told for step, told in in_six[1]["curves"]["test/accuracy"]}
    few = {
        (labels, way, step): [
            100 * dict(run["evaluations"])[step]
            for run in read_json(RESULTS / "digits-few-labels.json")["runs"]
            if (run["labels"], run["way"]) == (labels, way)
        ]
        for labels in (10, 20, 40)
        for way in ("normatch", "normatch-likened", TWICE, "normatch-successor")
        for step in (200, 600, 1200)
        if (step == 1200) <= (way == TWICE)
    }
    of_few = {key: statistics.mean(accuracies) for key, accuracies in few.items()}
    wine = sorted(of_features("NorMatch", "wine"))
    alone, *others = (
        statistics.mean(of_features(estimator, "CIFAR-10 features"))
        for estimator in ("LogisticRegression", "SelfTraining", "LabelSpreading", "FixMatch", "NorMatch")
    )
    leads = [lead_of_the_default(f"{method}Classifier") for method in ("FixMatch", "NorMatch")]
    return [
        f"{spreading[0]} points above LabelSpreading (95 % interval of the mean {spreading[1]} to {spreading[2]})",
        f"{fixmatch[0]} above FixMatch ({fixmatch[1]} to {fixmatch[2]}: not distinguishable)",
        f"NCUE {ncue[0]} over FixMatch, interval {ncue[1]} to {ncue[2]}",
        f"let into the backbone {let_in[0]}, {let_in[1]} to {let_in[2]}",
        f"a softmax head and a flow {flows[0]}, {flows[1]} to {flows[2]}",
        f"With 800 steps the validation accuracy was {100 * (long - short):.1f} points higher",
        f"{signed(statistics.mean(gaps), 2)} ± {statistics.stdev(gaps):.2f} points over four seeds",
        f"{end[2] - end[0]:.2f} points above bfloat16 (`joint`; {end[2] - end[1]:.2f} above `shared`)",
        f"307,200 steps: {final:.2f} % after {whole['seconds'] / 60:.1f} minutes on one H200, compilation and "
        f"{len(tested)} evaluations included",
        f"The mean of its last 20 evaluations is {mean:.2f} %, the best {best:.2f}",
        f"rose from {100 * tested[190464]:.1f} to {100 * tested[196608]:.1f} % between 190,464 and 196,608",
        f"{trusted[24576]:.0f} against {confident[24576]:.0f} % after 24,576 steps, when {correct[24576]:.0f} % are "
        f"right, and {trusted[307200]:.0f} against {confident[307200]:.0f} % at the end, when "
        f"{correct[307200]:.0f} % are",
        f"of the trusted {right[307200]:.1f} % are right at the end, of those above 0.95 {sure[307200]:.1f} %",
        f"(mean uncertainty at the end {flow[307200]:.1f} and {head[307200]:.1f} %)",
        f"they keep {weight[307200]:.0f} % of their weight, where {disputed[307200]:.0f} % of them are right",
        f"with the whole 300 epochs it ends at [{final:.2f} %]",
        f"cut off after {longer['last_step']:,} steps, had {100 * reached['test/accuracy']:.1f} % after "
        f"{reached['step']:,}",
        f"a run of {in_one_pass['last_step']:,} steps reached {100 * in_one_pass['accuracy']:.1f} %",
        f"these end between {min(all_of_40):.0f} and {max(all_of_40):.0f} %",
        f"by up to {max(max(row) - min(row) for row in rows):.1f} points in one row",
        f"above FixMatch on average, by {min(gains):.1f} to {max(gains):.1f} points",
        "only for the whole of NorMatch does the interval, {1:.1f} to {2:.1f}, exclude 0".format(
            *interval(gain("ncue-num", "fixmatch"))
        ),
        f"costs {-statistics.mean(let_through):.1f} ± {statistics.stdev(let_through):.1f} points",
        "gives {:.2f}, {:.2f} and {:.2f} % with seeds 0, 1 and 2".format(*seeds_of_250),
        f"is {in_minutes['quick-resnet'] - in_minutes['wrn-28-2']:.1f} points above the paper's WRN-28-2",
        f"ten layers is {in_minutes['wrn-28-2'] - in_minutes['wrn-10-4']:.1f} below it",
        f"rate of 0.1 adds {in_minutes['quick-resnet-lr-0.1'] - in_minutes['quick-resnet']:.1f} points",
        f"seven add {in_minutes['quick-resnet-ratio-3'] - in_minutes['quick-resnet']:.1f}, in a fifth more time",
        f"on seeds 0 to 2 longer runs with 250 labels differ by {max(seeds_of_250) - min(seeds_of_250):.1f} points",
        f"{100 * long_run[119207]:.1f} % after 119,207, then lost {100 * (long_run[119207] - long_run[130048]):.1f}",
        f"are {100 * (quick['onehot'][20480] - quick['soft'][20480]):.1f} points ahead of soft ones after 20,480",
        f"ends at {100 * sure_run[78336]:.1f} %, where the soft ones of row 8 had {100 * long_run[75859]:.1f} %",
        f"{100 * quick['onehot-strong-labels'][8530]:.1f} % after 8,530 steps, where weak augmentation gives "
        f"{100 * quick['onehot'][8530]:.1f} %",
        f"{100 * decided[39360]:.1f} % at half of a run of 79,872 steps, with {100 * sure_then:.0f} % of the",
        f"one-hot by and by, and ended at {100 * decided[79872]:.1f} %",
        f"it reaches {100 * quick['adaptive'][33792]:.1f} %, as much as one-hot pseudo-labels",
        f"had {100 * cut_off[49856]:.1f} % after 49,856 of its 79,872 steps and "
        f"{100 * cut_off[52480]:.1f} % after 52,480",
        f"all --data digits`, {len(list((RESULTS / 'reproduce').glob('digits-40-*.json')))} runs)",
        f"are within {max(100 * abs(last(quick[c]) - last(quick['adaptive'])) for c in VARIED):.1f} points of it",
        f"{100 * quick['contrasting'][4800]:.1f} % after 4,800 steps where NorMatch alone has "
        f"{100 * quick['adaptive-decay-1e-3'][5440]:.1f} % after 5,440, and not at the end: "
        f"{100 * last(quick['contrasting']):.1f} % against {100 * last(quick['adaptive-decay-1e-3']):.1f} %",
        f"from which 40 labels tell {100 * last(quick['contrast']):.1f} %",
        f"({100 * quick['started'][1600]:.1f} % after 1,600 steps), and ends at {100 * last(quick['started']):.1f} %",
        f"It has {100 * soft_first[19200]:.1f} % after 19,200 of its 32,768 steps and ends at "
        f"{100 * max(last(curve) for curve in quick.values()):.1f} %, the most of all",
        f"[{statistics.mean(tested_in_six):.2f} ± {statistics.stdev(tested_in_six):.2f} %](#beyond-the-paper-minutes) "
        f"of the test images (label seeds 0 to 2) in {min(minutes):.1f} to {max(minutes):.1f} minutes on one H200, "
        f"compilation and {len(in_six[0]['curves']['test/accuracy'])} evaluations included",
        f"it is {94.70 - statistics.mean(tested_in_six):.2f} points short of that",
        f"lag behind: {in_minutes['remembered']:.1f} %",
        f"cost {recipe['accuracy'] * 100 - max(in_minutes[c] for c in ('cutmix', 'mixup')):.1f} points",
        f"after 3,328 steps they tell {100 * averaged[3328]:.1f} % of the held-out images, when "
        f"{100 * own_right[near]:.0f} % of the network's own pseudo-labels are right",
        f"{100 * third[6656]:.1f} % against {100 * averaged[6656]:.1f} after 6,656 steps, and at the end by "
        f"{100 * (ops['accuracy'] - recipe['accuracy']):.1f} points",
        f"run ends at {100 * both['accuracy']:.1f} %, {100 * (both['accuracy'] - recipe['accuracy']):.1f} above the",
        f"`quick-resnet` has {narrow:.1f} % after 10,240 steps and {ceilings['all', 20480]:.1f} % after 20,480",
        f"More channels raise the {narrow:.1f} % by {wider - narrow:.1f} points at most",
        f"WRN-28-2 has {ceilings['all-wrn-28-2', 10240]:.1f} % after 10,240 steps",
        f"costs {100 * (ops['accuracy'] - varied['together']['accuracy']):.1f} points against three ops alone",
        f"three ops ends at {100 * deep['accuracy']:.1f} %, {100 * (deep['accuracy'] - ops['accuracy']):.1f} points "
        "above `quick-resnet` after as many steps, which take it "
        f"{ops['steps_per_second'] / deep['steps_per_second']:.1f} times as long",
        f"instead of four at full resolution, {ceilings['all-wrn-144', 10240]:.1f} %",
        f"after 49,920 steps it had {caught[49920]:.1f} %, then fell to {caught[65280]:.1f}, and ended at "
        f"{last(caught):.1f}",
        f"In the end {100 * believed[2]:.0f} % of its pseudo-labels are above 0.95, and {100 * believed[1]:.0f} % are "
        "right",
        f"rose from {freed[45056]:.1f} to {freed[49152]:.1f} % between 45,056 and 49,152",
        f"WRN-28-2 reaches {last(afresh):.1f} % in 34,816 steps",
        f"`quick-resnet` has {last(shallow):.1f} % after 32,768",
        f"frees it: {last(courses[100]):.1f} % in {minutes_of(teachers[100]) + minutes_of(heirs[100]):.1f} minutes "
        f"of steps, its predecessor's included, which ended at {100 * teachers[100]['accuracy']:.1f} %",
        f"took {mistaken[0][0][2]} of 500 held-out airplanes for birds, and {mistaken[0][2][0]} birds for airplanes; "
        f"of its pseudo-labels {passed_on[100][0]:.1f} % are right, of those that it passed on "
        f"{passed_on[100][1]:.1f} %. In row 4 it is {mistaken[1][0][2]} and {mistaken[1][2][0]}.",
        f"the start is better, {100 * teachers[101]['accuracy']:.1f} %, with {passed_on[101][1]:.1f} % of what is "
        f"passed on right, and the end is not: WRN-28-2 needs {surpassed:,} of its steps to be better than its "
        f"predecessor, and gains {last(courses[101]) - 100 * teachers[101]['accuracy']:.1f} points in "
        f"{minutes_of(heirs[101]):.1f} minutes",
        f"had {100 * tested[196608]:.1f} % while the rate was still at "
        f"{0.03 * math.cos(7 / 16 * math.pi * 196608 / 307200):.3f}",
        f"with 10 labels {of_few[10, 'normatch-likened', 200]:.1f} % against {of_few[10, 'normatch', 200]:.1f} after "
        f"200 steps, and not in the end: {of_few[10, 'normatch-likened', 600]:.1f} ± "
        f"{statistics.stdev(few[10, 'normatch-likened', 600]):.1f} % against {of_few[10, 'normatch', 600]:.1f} ± "
        f"{statistics.stdev(few[10, 'normatch', 600]):.1f}; with 20 labels {of_few[20, 'normatch-likened', 600]:.1f} "
        f"against {of_few[20, 'normatch', 600]:.1f}, with 40 {of_few[40, 'normatch-likened', 600]:.1f} against "
        f"{of_few[40, 'normatch', 600]:.1f}",
        f"the successor ends at {of_few[10, 'normatch-successor', 600]:.1f} ± "
        f"{statistics.stdev(few[10, 'normatch-successor', 600]):.1f} % with 10 labels, and one run of 1,200 steps at "
        f"{of_few[10, TWICE, 1200]:.1f} ± {statistics.stdev(few[10, TWICE, 1200]):.1f}; with 20 labels at "
        f"{of_few[20, 'normatch-successor', 600]:.1f} against {of_few[20, TWICE, 1200]:.1f}, with 40 at "
        f"{of_few[40, 'normatch-successor', 600]:.1f} against {of_few[40, TWICE, 1200]:.1f}",
        f"(NorMatch {wine[0]:.1f} there, {wine[1]:.1f} to {wine[-1]:.1f} on the others)",
        f"features {'nothing' if max(others) <= alone else 'something'} gained over the labels alone",
        f"by {leads[0]:.1f} points (FixMatch) and {leads[1]:.1f} (NorMatch)",
    ]


@pytest.mark.parametrize("claim", claims())
def test_its_words_say_what_the_files_say(claim: str) -> None:
    page = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    assert claim in " ".join(page.split())
