"""Write the report of a run, or of a comparison, to a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from normatch.config import to_json
from normatch.data import Reading
from normatch.data.reading import DEFAULT
from normatch.device import Device
from normatch.errors import UserError
from normatch.files import must_be_free, replacing
from normatch.report.comparison import Comparison
from normatch.report.comparison_page import comparison_page
from normatch.report.evidence import gather
from normatch.report.findings import examine
from normatch.report.page import page
from normatch.report.pictures import pictures_of
from normatch.training.run import STAYED, Moved, Run

__all__ = ["numbers_of", "write_comparison", "write_page", "write_report"]


def write_report(
    run: Path,
    out: Path | None = None,
    *,
    moved: Moved = STAYED,
    device: Device = "auto",
    reading: Reading = DEFAULT,
    force: bool = False,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Write the page of a finished run, ``RUN/report.html`` by default, and return its path.

    An earlier ``RUN/report.html`` is replaced if the data could be read; it or another file, with ``force``. ``tell``
    is called with a sentence if the data could not be read, which the page then lacks.
    """
    usual = Run.open(run).path / "report.html"
    place = out or usual
    must_be_free(place, force=force or place.resolve() == usual.resolve())
    _must_be_a_page(place)
    evidence = gather(run, moved, device, reading)
    if evidence.gone is not None:
        if place.exists() and not force:
            raise UserError(
                f"{place} exists already, and a new page would lack the data, which cannot be read ({evidence.gone}): "
                "replace it with --force, or say where the data is with --data"
            )
        tell(evidence.gone_or(""))
    findings = examine(evidence)
    write_page(place, page(findings, pictures_of(evidence, findings)))
    return place


def _must_be_a_page(path: Path) -> None:
    """Raise UserError unless the name is that of an HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path} is to be an HTML page: give a name that ends in .html")


def numbers_of(
    run: Path, *, moved: Moved = STAYED, device: Device = "auto", reading: Reading = DEFAULT
) -> dict[str, Any]:
    """The numbers of the page of a run, JSON-ready."""
    numbers: dict[str, Any] = to_json(examine(gather(run, moved, device, reading)))
    return numbers


def write_comparison(comparison: Comparison, out: Path, *, force: bool = False) -> Path:
    """Write the page of a comparison; a file that exists is replaced only with ``force``."""
    must_be_free(out, force=force)
    _must_be_a_page(out)
    write_page(out, comparison_page(comparison))
    return out


def write_page(place: Path, markup: str) -> None:
    try:
        with replacing(place) as part:
            # File names that are not valid text are written with escapes.
            part.write_text(markup, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UserError(f"cannot write {place} ({error.strerror}): choose another --out") from error
