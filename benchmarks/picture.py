"""The picture of the README from benchmarks/results/digits-40.json: a dot a seed, a tick for their mean."""

import json
import statistics
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "digits-40.json"

NAMES = {
    "supervised": "the 40 labels alone",
    "LabelSpreading": "scikit-learn LabelSpreading",
    "fixmatch": "FixMatch",
    "normatch": "NorMatch",
}
LEFT, RIGHT, TOP, ROW, WIDTH = 240, 70, 56, 44, 760
LOW, HIGH = 75.0, 100.0


def place(accuracy: float) -> float:
    """The x of an accuracy in per cent."""
    return LEFT + (accuracy - LOW) / (HIGH - LOW) * (WIDTH - LEFT - RIGHT)


def draw(path: Path) -> None:
    """Draw it anew."""
    report = json.loads(RESULTS.read_text())
    scores = {m: [100 * r["accuracy"] for r in report["runs"] if r["method"] == m] for m in NAMES}
    height = TOP + ROW * len(NAMES) + 40
    seeds = len(scores["normatch"])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="15" role="img">',
        f"<title>Accuracy on 360 held-out digits with 40 labels, {seeds} seeds</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        '<text x="24" y="32" font-size="17" font-weight="600" fill="#1f2328">Digits, 40 labels: '
        f"accuracy on held-out images (%), {seeds} seeds and their mean</text>",
    ]
    for tick in range(75, 101, 5):
        x, bottom = place(tick), height - 34
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle" fill="#59636e">{tick}</text>')
    for i, (method, name) in enumerate(NAMES.items()):
        y, mean = TOP + ROW * i, statistics.mean(scores[method])
        ours = method == "normatch"
        colour = "#0969da" if ours else "#8c959f"
        weight = ' font-weight="600"' if ours else ""
        parts.append(f'<text x="{LEFT - 12}" y="{y + 21}" text-anchor="end" fill="#1f2328"{weight}>{name}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y + 16}" y2="{y + 16}" stroke="#d8dee4"/>')
        parts.append(f'<rect x="{place(mean) - 2:.1f}" y="{y + 3}" width="4" height="26" rx="2" fill="{colour}"/>')
        parts += [
            f'<circle cx="{place(score):.1f}" cy="{y + 16}" r="5" fill="{colour}" fill-opacity="0.45"/>'
            for score in scores[method]
        ]
        parts.append(f'<text x="{WIDTH - RIGHT + 14}" y="{y + 21}" fill="#1f2328"{weight}>{mean:.1f}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
