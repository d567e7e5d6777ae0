"""Download a data set's published files: interrupted downloads resume, and a file is renamed only after its check."""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from normatch.data.source import Archive, find, md5_of, sources
from normatch.errors import UserError, reason
from normatch.files import alone

__all__ = ["DownloadProgress", "get"]

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received so far, and its size (None if unknown)."""

TIMEOUT_S = 30
CHUNK = 1 << 18


def get(name: str, root: Path, progress: DownloadProgress = lambda *_: None) -> tuple[Path, ...]:
    """Download the archives of a data set to ``root/name`` and return their paths; existing ones are only checked."""
    source, folder = sources.get(name), root / name
    if not source.archives and not source.embedded:
        raise UserError(
            f"{name} is not published as a file to download: make it as {source.home} says, and put it in {folder}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {reason(error)}; choose another root") from error
    return tuple(_fetch(archive, folder, progress) for archive in source.archives)


def _fetch(archive: Archive, folder: Path, progress: DownloadProgress) -> Path:
    target, part = folder / archive.name, folder / f"{archive.name}.part"
    busy = f"{target} is being downloaded by another process: wait for it"
    with alone(folder / f".{archive.name}.lock", busy):
        if target.exists():
            find(folder, [archive])
            progress(archive.name, target.stat().st_size, target.stat().st_size)
            return target
        _download(archive, part, progress)
        wrong = None
        if archive.size is not None and part.stat().st_size > archive.size:
            wrong = f"sends more than the {archive.size:,} bytes that are published"
        elif archive.md5 is not None and (actual := md5_of(part)) != archive.md5:
            wrong = f"has a wrong checksum: the md5 of what came is {actual}, but {archive.md5} is published"
        if wrong:
            part.unlink()
            raise UserError(f"{archive.url} {wrong}; it was deleted: try again, or put the right file in {folder}")
        os.replace(part, target)
    return target


def _download(archive: Archive, part: Path, progress: DownloadProgress) -> None:
    """Complete the partial file ``part``, resuming at its end if the server supports that."""
    here = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "normatch"} | ({"Range": f"bytes={here}-"} if here else {})
    try:
        request = urllib.request.Request(archive.url, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            done = here if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
            length = response.headers.get("Content-Length")
            total = archive.size if length is None else done + int(length)
            with part.open("ab" if done else "wb") as file:
                progress(archive.name, done, total)
                while (archive.size is None or done <= archive.size) and (chunk := response.read(CHUNK)):
                    file.write(chunk)
                    done += len(chunk)
                    progress(archive.name, done, total)
    except (OSError, http.client.HTTPException, ValueError) as error:  # the last for an address that is none
        why = reason(error)
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            if here and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # nothing is left to send; the checksum decides
            why = f"HTTP status {error.code} ({error.reason})"
        elif isinstance(error, urllib.error.URLError):
            why = reason(error.reason) if isinstance(error.reason, BaseException) else error.reason
        by_hand = f"try again, or fetch it by hand and put it in {part.parent}"
        raise UserError(f"cannot download {archive.url}: {why}; {by_hand}") from error
    if total is not None and done < min(total, archive.size or total):
        raise UserError(
            f"the download of {archive.url} stopped at {done:,} of {total:,} bytes: run it again to resume it"
        )
