"""Downloads from a server of our own: whole, resumed, cut off, wrong, and from nowhere."""

import hashlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from normatch.data import Corpus
from normatch.data.download import get
from normatch.data.source import Archive, Source, sources
from normatch.errors import UserError
from tests.data.original_formats import random_bytes, state_md5

CONTENT = random_bytes(1_000_000).tobytes()
MD5 = hashlib.md5(CONTENT).hexdigest()


@dataclass
class Server:
    """What it does with a request, and what it was asked."""

    url: str = ""
    ranges: bool = True
    cut: int | None = None
    """Hang up after so many bytes."""
    length: str | None = ""
    """What it says of the length; the truth if empty, nothing if None."""
    began: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event | None = None
    """What it waits for after the first bytes."""
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            state.asked.append(wanted)
            if self.path != "/thing.bin":
                self.send_error(404)
                return
            start = 0
            if wanted and state.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(CONTENT):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
            else:
                self.send_response(200)
            body = CONTENT[start:]
            if state.length is not None:
                self.send_header("Content-Length", state.length or str(len(body)))
            self.end_headers()
            state.began.set()
            if state.go_on is not None:
                state.go_on.wait(20)
            self.wfile.write(body[: state.cut])

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that hang up: some here do."""

    with Quiet(("127.0.0.1", 0), Handler) as httpd:
        state.url = f"http://127.0.0.1:{httpd.server_address[1]}/thing.bin"
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        httpd.shutdown()
        thread.join()


@pytest.fixture
def add(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Defines the data set ``thing``, a file of the server's."""

    def add(url: str = "", md5: str | None = MD5, size: int | None = len(CONTENT)) -> None:
        def read(_where: Path) -> Corpus:
            raise AssertionError("a download does not read")

        archives = (Archive(url or server.url, md5, size),)
        monkeypatch.setitem(sources._things, "thing", Source("a thing", 2, (1, 2, 2), read, "http://home", archives))

    sources.names()  # its own come first
    add()
    return add


def visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def complaint(root: Path, name: str = "thing") -> str:
    with pytest.raises(UserError) as caught:
        get(name, root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("add")
def test_whole(tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    paths = get("thing", tmp_path / "new", lambda *news: told.append(news))
    assert paths == (tmp_path / "new" / "thing" / "thing.bin",)
    assert paths[0].read_bytes() == CONTENT
    assert visible(paths[0].parent) == [paths[0]]
    assert told[0] == ("thing.bin", 0, len(CONTENT))
    assert told[-1] == ("thing.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


@pytest.mark.usefixtures("add")
def test_what_is_here_is_checked_and_kept(server: Server, tmp_path: Path) -> None:
    (path,) = get("thing", tmp_path)
    get("thing", tmp_path)
    assert len(server.asked) == 1
    path.write_bytes(CONTENT[:-1] + b"?")
    assert f"{path} has a wrong checksum" in complaint(tmp_path)
    assert path.exists(), "a file of the user's is not ours to delete"
    state_md5(path)
    assert get("thing", tmp_path) == (path,)
    assert len(server.asked) == 1


@pytest.mark.usefixtures("add")
@pytest.mark.parametrize("ranges", [True, False])
def test_interrupted_and_resumed(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.cut, server.ranges = 600_000, ranges
    assert "stopped at 600,000 of 1,000,000 bytes" in complaint(tmp_path)
    part = tmp_path / "thing" / "thing.bin.part"
    assert part.read_bytes() == CONTENT[:600_000]
    assert not (tmp_path / "thing" / "thing.bin").exists()
    server.cut = None
    told: list[int] = []
    (path,) = get("thing", tmp_path, lambda _name, done, _total: told.append(done))
    assert path.read_bytes() == CONTENT
    assert not part.exists()
    assert server.asked == [None, "bytes=600000-"]
    assert told[0] == (600_000 if ranges else 0)


@pytest.mark.usefixtures("add")
@pytest.mark.parametrize("extra", [b"", b"too long"])
def test_a_part_that_is_complete_or_longer_than_the_file(tmp_path: Path, extra: bytes) -> None:
    part = tmp_path / "thing" / "thing.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT + extra)
    if extra:
        assert "it was deleted: try again" in complaint(tmp_path)
    assert get("thing", tmp_path)[0].read_bytes() == CONTENT


def test_content_that_is_not_the_published_one_is_deleted(
    server: Server, add: Callable[..., None], tmp_path: Path
) -> None:
    add(md5="0" * 32)
    assert f"{server.url} has a wrong checksum" in complaint(tmp_path)
    assert visible(tmp_path / "thing") == []
    add(size=700_000)
    assert f"{server.url} sends more than the 700,000 bytes that are published" in complaint(tmp_path)
    assert visible(tmp_path / "thing") == []


def test_nothing_is_published_about_the_file(server: Server, add: Callable[..., None], tmp_path: Path) -> None:
    server.length = None
    add(md5=None, size=None)
    assert get("thing", tmp_path)[0].read_bytes() == CONTENT


def test_addresses_that_lead_nowhere(server: Server, add: Callable[..., None], tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        for url, why in {
            "http://[": "",
            "nothing://x": "unknown url type: nothing; try",
            f"http://127.0.0.1:{unused.getsockname()[1]}/thing": "Connection refused; try again",
            server.url.replace("thing", "other"): "HTTP status 404 (Not Found); try again, or fetch it by hand",
        }.items():
            add(url)
            assert f"cannot download {url}: {why}" in complaint(tmp_path)


@pytest.mark.usefixtures("add")
def test_one_at_a_time(server: Server, tmp_path: Path) -> None:
    server.go_on = threading.Event()
    with ThreadPoolExecutor(1) as first:
        fetched = first.submit(get, "thing", tmp_path)
        try:
            assert server.began.wait(20)
            message = complaint(tmp_path)
        finally:
            server.go_on.set()
        (path,) = fetched.result()
    assert message.startswith(f"{path} is being downloaded by another process: wait for it")
    assert path.read_bytes() == CONTENT
    assert len(server.asked) == 1


@pytest.mark.usefixtures("add")
def test_nothing_to_download_and_nowhere_to_put_it(tmp_path: Path) -> None:
    assert get("digits", tmp_path) == ()
    assert "as https://github.com/ahmetius/LP-DeepSSL says" in complaint(tmp_path, "mini-imagenet")
    (tmp_path / "file").write_text("")
    assert "cannot make the folder" in complaint(tmp_path / "file")


def test_every_archive_says_what_it_is() -> None:
    for archive in (archive for name in sources.names() for archive in sources.get(name).archives):
        assert archive.size
        assert archive.md5 is not None
        assert len(archive.md5) == 32
