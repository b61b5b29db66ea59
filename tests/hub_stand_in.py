"""A small local stand-in of the Hub's HTTP API: listings, HEAD, GET with ranges, and its refusals.

Source: what huggingface_hub 0.30 to 2.4 asks for, and the headers it reads.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISIONS = {"main", "v1", COMMIT}


class StandIn(BaseHTTPRequestHandler):
    """Serves `root`/owner/name as repositories; `gated/...` and `private/...` are refused."""

    root: ClassVar[Path]
    token: ClassVar[str | None] = None
    broken: ClassVar[bool] = False
    asked: ClassVar[list[str]]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""

    def answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(f"{self.command} {path}")
        match = re.fullmatch(
            r"/(?:api/models/)?(?P<repo>[^/]+/[^/]+)"
            r"(?:/(?P<verb>revision|tree|resolve)/(?P<revision>[^/]+)(?:/(?P<file>.+))?)?",
            path,
        )
        if self.broken or match is None:
            return self.refuse(503, "Unavailable", body)
        repo = self.root / match["repo"]
        if match["repo"].startswith("gated/") and "Authorization" not in self.headers:
            return self.refuse(401, "GatedRepo", body)
        known = self.headers.get("Authorization") == f"Bearer {self.token}"
        if match["repo"].startswith("private/") and not known:
            return self.refuse(401, "RepoNotFound", body)
        if not repo.is_dir():
            return self.refuse(404, "RepoNotFound", body)
        if (match["revision"] or "main") not in REVISIONS:
            return self.refuse(404, "RevisionNotFound", body)
        if match["verb"] == "resolve":
            return self.send_content(repo / match["file"], body)
        files = sorted(p for p in repo.rglob("*") if p.is_file())
        names = {str(p.relative_to(repo)): p.stat().st_size for p in files}
        if match["verb"] == "tree":
            return self.send_json(
                [{"type": "file", "path": n, "size": s, "oid": f"{i}"} for i, (n, s)
                 in enumerate(names.items())]
            )  # fmt: skip
        return self.send_json(
            {
                "id": match["repo"],
                "sha": COMMIT,
                "private": False,
                "gated": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": [{"rfilename": n, "size": s} for n, s in names.items()],
            }
        )

    def refuse(self, status: int, code: str, body: bool) -> None:
        text = json.dumps({"error": code}).encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)

    def send_json(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def send_content(self, path: Path, body: bool) -> None:
        if not path.is_file():
            return self.refuse(404, "EntryNotFound", body)
        data = path.read_bytes()
        tag = hashlib.sha256(data).hexdigest()
        start = int(m[1]) if (m := re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))) else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{tag}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if body:
            self.wfile.write(data[start:])
        return None


@contextmanager
def serve(root: Path) -> Iterator[tuple[str, type[StandIn]]]:
    """Serve the repositories under `root`; yields the endpoint and the handler to adjust."""
    handler = type("Handler", (StandIn,), {"root": root, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
