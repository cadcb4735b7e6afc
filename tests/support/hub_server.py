"""A stand-in for the Hugging Face Hub, with what its client needs to push and to fetch files."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

COMMIT = "c0ffee" * 6 + "c0ff"


class Hub(http.server.ThreadingHTTPServer):
    """Has the files of one data set; ``requests`` are the lines of what was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()
        self.blobs: dict[str, bytes] = {}  # by SHA-256, as uploaded


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, data: Any, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _read(self) -> bytes:
        self.server.requests.append(f"{self.command} {self.path}")
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_POST(self) -> None:
        body, hub = self._read(), self.server
        hub.tokens.add(self.headers.get("Authorization"))
        if self.path.endswith("/repos/create"):
            name = "{organization}/{name}".format_map(json.loads(body))
            if name.startswith("theirs/"):
                return self._answer({"error": "you may not write here"}, 403)
            self._answer({"url": f"{hub.url}/datasets/{name}", "name": name})
        elif self.path.endswith("/validate-yaml"):
            content = json.loads(body)["content"]
            front = yaml.safe_load(content.split("---\n")[1])
            self._answer({"errors": [] if isinstance(front, dict) else [{"message": "no YAML"}]})
        elif "/preupload/" in self.path:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "regular" if file["path"].endswith((".md", ".json")) else "lfs",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    **each,
                    "actions": {
                        "upload": {"href": f"{hub.url}/put/{each['oid']}"},
                        "verify": {"href": f"{hub.url}/verify"},
                    },
                }
                for each in json.loads(body)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects})
        elif self.path == "/verify":
            asked = json.loads(body)
            self._answer({}, 200 if len(hub.blobs[asked["oid"]]) == asked["size"] else 422)
        else:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    hub.files[value["path"]] = hub.blobs[value["oid"]]
            self._answer(
                {"commitUrl": f"{hub.url}/datasets/a/b/commit/{COMMIT}", "commitOid": COMMIT}
            )

    def do_PUT(self) -> None:
        body = self._read()
        oid = self.path.rpartition("/")[2]
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.blobs[oid] = body
        self._answer({})

    def do_HEAD(self) -> None:
        self._send_file()

    def do_GET(self) -> None:
        self._send_file()

    def _send_file(self) -> None:
        self._read()
        content = self.server.files.get(self.path.rpartition("/")[2])
        if content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@contextmanager
def local_hub(monkeypatch: pytest.MonkeyPatch, cache: str) -> Iterator[Hub]:
    """Start a stand-in, which huggingface_hub takes for the Hub, with a token and a cache."""
    from huggingface_hub import constants

    with Hub() as hub:
        options = {"poll_interval": 0.01}
        threading.Thread(target=hub.serve_forever, kwargs=options, daemon=True).start()
        # What HF_ENDPOINT, HF_HUB_CACHE and HF_HUB_DISABLE_XET set before the package is imported
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
        yield hub
        hub.shutdown()
