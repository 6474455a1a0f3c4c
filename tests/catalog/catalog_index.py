"""A package index on the loopback address, with wheels made on the spot and manners that can be turned bad."""

import hashlib
import http.server
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape

REGISTRY = "vllm/model_executor/models/registry.py"


def wheel_of(files: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of these files."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", method) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return body.getvalue()


def vllm_wheel(version: str, names: str, requires: str = "<5,>=4.56.0") -> bytes:
    """A vLLM whose registry has these names."""
    rows = "".join(f'    "{name}": ("m", "{name}"),\n' for name in names.split())
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\nRequires-Dist: transformers{requires}\n"
    return wheel_of(
        {REGISTRY: f"_VLLM_MODELS = {{\n{rows}}}\n", f"vllm-{version}.dist-info/METADATA": metadata, "vllm/_C.so": "x"}
    )


class Index:
    """What the server has, how it behaves, and what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.yanked: set[str] = set()
        self.manners: dict[str, str] = {}  # of a file: see Handler.respond; "" is well-behaved
        self.sizes: dict[str, int | None] = {}  # what the pages say instead of the truth
        self.hashes: dict[str, str] = {}
        self.html = False
        self.pages: dict[str, bytes] = {}  # of a distribution, instead of the right one
        self.asked: list[tuple[str, str]] = []  # path and Range
        self.stuck = threading.Event()  # a request for a file of manners "stuck" has come
        self.free = threading.Event()
        self.url = ""

    def add(self, name: str, version: str, body: bytes, tag: str = "py3-none-any") -> str:
        """One more wheel; its file name."""
        filename = f"{name}-{version}-{tag}.whl"
        self.files[filename] = body
        return filename

    def wheels_asked(self) -> list[str]:
        """The wheels that were asked for, each once."""
        return list(dict.fromkeys(path.rsplit("/", 1)[1] for path, _ in self.asked if path.startswith("/files/")))

    def page(self, name: str) -> tuple[str, bytes] | None:
        rows = [file for file in self.files if file.startswith(f"{name.replace('-', '_')}-")]
        if name in self.pages:
            return "application/vnd.pypi.simple.v1+json", self.pages[name]
        if not rows:
            return None
        if self.html:
            links = (
                f'<a href="../../files/{row}#sha256={self.sha(row)}"{" data-yanked" if row in self.yanked else ""}>'
                f"{escape(row)}</a><br>"
                for row in rows
            )
            return "text/html; charset=utf-8", f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        files = [
            {
                "filename": row,
                "url": f"/files/{row}",
                "hashes": {"sha256": self.sha(row)},
                "yanked": row in self.yanked and "broken",
                **({"size": size} if (size := self.sizes.get(row, len(self.files[row]))) else {}),
            }
            for row in rows
        ]
        return "application/vnd.pypi.simple.v1+json", json.dumps({"name": name, "files": files}).encode()

    def sha(self, row: str) -> str:
        return self.hashes.get(row, hashlib.sha256(self.files[row]).hexdigest())


@contextmanager
def serving() -> Iterator[Index]:
    """An index that answers as long as the block runs."""
    index = Index()

    class Handler(_Handler):
        state = index

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    try:
        yield index
    finally:
        index.free.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Index

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        self.state.asked.append((self.path, self.headers.get("Range", "")))
        try:
            if self.path.startswith("/simple/"):
                page = self.state.page(self.path.split("/")[2])
                self.answer(200, page[1], ("Content-Type", page[0])) if page else self.answer(404, b"")
            else:
                name = self.path.rsplit("/", 1)[1]
                self.file(name, self.state.files[name], self.state.manners.get(name, ""))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def file(self, name: str, body: bytes, manners: str) -> None:
        """With manners, the file or a part of it."""
        asked = re.match(r"bytes=(\d*)-(\d*)$", self.headers.get("Range", ""))
        if manners == "stuck":
            self.state.stuck.set()
            self.state.free.wait()
        if manners == "loop":
            self.answer(302, b"", ("Location", self.path))
        elif manners == "broken":
            self.answer(500, b"")
        elif manners == "whole-endless":
            self.endless(200, "")
        elif manners == "whole" or not asked:
            self.answer(200, body)
        else:
            start = int(asked[1]) if asked[1] else max(0, len(body) - int(asked[2]))
            end = min(int(asked[2]) + 1, len(body)) if asked[1] else len(body)
            self.part(body, start, end, manners)

    def part(self, body: bytes, start: int, end: int, manners: str) -> None:
        size = len(body)
        lies = {
            "other-part": f"bytes {start + 1}-{end}/{size}" if end < size else "",
            "nonsense": "bytes all of it",
            "huge": f"bytes {10**15 - end + start}-{10**15 - 1}/{10**15}",
        }
        says = lies.get(manners) or f"bytes {start}-{end - 1}/{size}"
        if manners == "endless":
            self.endless(206, says)
        else:
            self.answer(206, body[start : end - (manners == "short")], ("Content-Range", says))

    def endless(self, status: int, says: str) -> None:
        self.send_response(status)
        self.send_header("Content-Range", says)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not self.state.free.is_set():
            self.wfile.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
