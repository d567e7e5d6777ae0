"""Find the files of a data set, and name exactly those that are missing."""

from collections.abc import Sequence
from pathlib import Path

from normatch.errors import UserError

__all__ = ["MissingFiles", "pick"]


class MissingFiles(UserError):
    """Files of a data set are missing in the folder ``where``.

    ``partial`` means that other files of the data set are there, so that it is the right folder.
    """

    def __init__(self, name: str, where: Path, files: Sequence[str], *, partial: bool, remedy: str = "") -> None:
        self.name, self.where, self.files, self.partial = name, where, tuple(files), partial
        self.remedy = remedy or f"run `normatch data get {name}`, or put {'it' if len(files) == 1 else 'them'} there"
        super().__init__(self.message(str(where)))

    def message(self, where: str) -> str:
        verb = "is" if len(self.files) == 1 else "are"
        return f"{self.name}: {', '.join(self.files)} {verb} missing in {where}: {self.remedy}"


def pick(name: str, where: Path, choices: Sequence[tuple[str, ...]]) -> list[Path]:
    """For each tuple of alternative names, the first file that exists in ``where``; if none does, report the last."""
    found = [next((where / file for file in files if (where / file).is_file()), None) for files in choices]
    missing = [files[-1] for files, path in zip(choices, found, strict=True) if path is None]
    if missing:
        raise MissingFiles(name, where, missing, partial=len(missing) < len(choices))
    return [path for path in found if path is not None]
