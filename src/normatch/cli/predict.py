"""``normatch predict``: label images with a trained model."""

import sys
from pathlib import Path

from tyro.conf import Positional

from normatch.arguments import or_skipped, parse
from normatch.data import OnBad
from normatch.device import Device
from normatch.evaluate.predict import predict_to

__all__ = ["main"]


def main(argv: list[str]) -> None:
    parse(verb, "predict", argv)


def verb(
    run: Positional[Path],
    inputs: Positional[tuple[Path, ...]],
    out: Path | None = None,
    on_bad_image: OnBad = "stop",
    batch: int | None = None,
    calibrated: bool = True,
    device: Device = "auto",
    force: bool = False,
) -> None:
    """Label image files, all images of folders, or the rows of an array with a trained model.

    Args:
        run: Folder of the run.
        inputs: Image files, folders, CSV files that list images, one .npy or .npz file, or - for paths on standard
            input, one per line.
        out: Table to write, a .csv or .parquet file; standard output by default.
        on_bad_image: On an unreadable image, stop without writing --out, or skip it and name it at the end.
        batch: Items that go through the network at once; by default 256, or fewer if they are large pictures.
        calibrated: Divide the logits by the temperature that was fitted on the run's validation images, if it was.
        device: Where to compute.
        force: Replace --out if it exists.
    """
    with or_skipped():
        said = predict_to(
            run, inputs, out, on_bad=on_bad_image, batch=batch, calibrated=calibrated, device=device, force=force
        )
    print(said, file=sys.stderr if out is None else sys.stdout)
