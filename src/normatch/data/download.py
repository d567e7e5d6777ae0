"""Download a data set's published files: interrupted downloads resume, and a file is renamed only after its check."""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from normatch.data.source import Archive, Source, md5_of, verify
from normatch.errors import UserError, reason

__all__ = ["DownloadProgress", "get"]

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received so far, and its size (None if unknown)."""

TIMEOUT_S = 30
CHUNK = 1 << 18


def get(source: Source, root: Path, progress: DownloadProgress | None = None) -> tuple[Path, ...]:
    """Download the archives of ``source`` to ``root/<name>`` and return their paths; existing ones are only checked."""
    folder = root / source.name
    if not source.archives and not source.embedded:
        raise UserError(f"{source.name} is not published as a file to download: see {source.home}, put it in {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {reason(error)}; choose another root") from error
    return tuple(_fetch(source.name, archive, folder, progress or _silent) for archive in source.archives)


def _silent(_name: str, _done: int, _total: int | None) -> None:
    pass


def _fetch(name: str, archive: Archive, folder: Path, progress: DownloadProgress) -> Path:
    target, part = folder / archive.name, folder / f"{archive.name}.part"
    try:
        with FileLock(folder / f".{archive.name}.lock", timeout=0):
            if target.exists():
                verify(target, archive, name)
                progress(archive.name, target.stat().st_size, target.stat().st_size)
                return target
            _download(archive, part, progress)
            if archive.md5 is not None and (actual := md5_of(part)) != archive.md5:
                part.unlink()
                raise UserError(
                    f"{archive.url} has a wrong checksum: the md5 of what came is {actual}, but {archive.md5} is "
                    f"published; it was deleted: try again, or put the right file in {folder}"
                )
            os.replace(part, target)
    except Timeout:
        raise UserError(f"{target} is being downloaded by another process: wait for it") from None
    return target


def _download(archive: Archive, part: Path, progress: DownloadProgress) -> None:
    """Complete the partial file ``part``, resuming at its end if the server supports that."""
    here = part.stat().st_size if part.exists() else 0
    by_hand = f"try again, or fetch {archive.url} by hand and put it in {part.parent}"
    try:
        with _request(archive.url, here) as response:
            start = _start(response, here)
            total = archive.size if response.length is None else start + response.length
            done = _append(response, archive, part, start, total, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if here and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            # Nothing left to send: the part is complete or, if longer than the file, wrong and downloaded again.
            if error.headers.get("Content-Range") != f"bytes */{here}":
                part.unlink()
                _download(archive, part, progress)
            return
        raise UserError(
            f"cannot download {archive.url}: HTTP status {error.code} ({error.reason}); {by_hand}"
        ) from error
    except UserError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:  # the last for an address that is none
        raise UserError(f"cannot download {archive.url}: {reason(error)}; {by_hand}") from error
    if total is not None and done < total:
        raise UserError(
            f"the download of {archive.url} stopped at {done:,} of {total:,} bytes: run it again to resume it"
        )


def _request(url: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "normatch"} | ({"Range": f"bytes={start}-"} if start else {})
    response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
    if not isinstance(response, http.client.HTTPResponse):
        response.close()
        raise http.client.HTTPException(f"the server sends to {response.url}, which is no web page")
    return response


def _start(response: http.client.HTTPResponse, requested: int) -> int:
    """The offset of the response's first byte: 0 if the server ignores the range and sends the whole file."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    sent = response.headers.get("Content-Range") or ""
    if not sent.startswith(f"bytes {requested}-"):
        raise http.client.HTTPException(f"requested the bytes from {requested} on, the server sent {sent!r}")
    return requested


def _append(
    response: http.client.HTTPResponse,
    archive: Archive,
    part: Path,
    start: int,
    total: int | None,
    progress: DownloadProgress,
) -> int:
    """Write what the server sends, and no more than the published size."""
    done = start
    with part.open("ab" if start else "wb") as file:
        progress(archive.name, done, total)
        while chunk := response.read(CHUNK):
            done += len(chunk)
            if archive.size is not None and done > archive.size:
                file.close()
                part.unlink()
                raise UserError(
                    f"{archive.url} sends more than the {archive.size:,} bytes that are published; it was deleted: "
                    f"put the right file in {part.parent}"
                )
            file.write(chunk)
            progress(archive.name, done, total)
    return done
