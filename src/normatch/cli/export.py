"""``normatch export``: turn a trained model into one ONNX or torch file."""

from pathlib import Path

from tyro.conf import Positional

from normatch.arguments import parse
from normatch.evaluate.export import Format, export_run

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "export", argv)


def verb(
    run: Positional[Path],
    format: Format = "onnx",
    out: Path | None = None,
    force: bool = False,
) -> None:
    """Write a trained model, preprocessing included, to one file that runs without normatch.

    Args:
        run: Folder of the run.
        format: onnx for ONNX runtimes, torch for torch.export.load.
        out: File to write; model.onnx or model.pt2 in the run's folder by default.
        force: Replace the file if it exists.
    """
    print(export_run(run, format, out, force=force))
