"""``trinity export --push`` with the real huggingface_hub, against a stub of the hub's HTTP API."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PUSH = """
import sys
from pathlib import Path

from trinity_lab.export_command import _push

_push(Path(sys.argv[1]), sys.argv[2])
"""


class Hub(BaseHTTPRequestHandler):
    """Takes a repository and its commits as the hub does; files stand in ``server.files``."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        if self.headers.get("Authorization") != "Bearer hf_right":
            self._answer(401, {"error": "Invalid credentials in Authorization header"})
        elif self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            self._answer(200, {"url": f"{self.server.url}/ada/tiny"})
        elif self.path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif self.path.endswith("/preupload/main"):
            way = {"uploadMode": "regular", "shouldIgnore": False}
            files = [one | way for one in json.loads(body)["files"]]
            self._answer(200, {"files": files})
        elif re.fullmatch(r"/api/models/ada/tiny/commit/main", self.path):
            self._commit(body)
        else:
            self._answer(404, {"error": self.path})

    def do_GET(self):
        info = {"id": "ada/tiny", "sha": "0" * 40, "siblings": [], "private": True}
        is_known = self.path.startswith("/api/models/")
        self._answer(200 if is_known else 404, info if is_known else {"error": self.path})

    def _commit(self, body: bytes) -> None:
        for line in body.decode().splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                content = base64.b64decode(entry["value"]["content"])
                self.server.files[entry["value"]["path"]] = content
        url = f"{self.server.url}/ada/tiny/commit/{'1' * 40}"
        self._answer(200, {"success": True, "commitOid": "1" * 40, "commitUrl": url})

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.url = f"http://127.0.0.1:{server.server_port}"
    server.files, server.asked, server.created = {}, [], None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def push(hub, tmp_path):
    """Return a function that uploads a small folder with a token, in a process of its own."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# tiny\n")
    (folder / "model.safetensors").write_bytes(bytes(range(256)))

    def run(token: str) -> subprocess.CompletedProcess[str]:
        own = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0"}
        own |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-c", PUSH, str(folder), "ada/tiny"]
        options = {"env": {**os.environ, **own}, "capture_output": True, "text": True}
        return subprocess.run(command, check=False, timeout=300, **options)

    return run


def test_the_folder_is_uploaded_to_a_private_repository(push, hub) -> None:
    ended = push("hf_right")

    assert ended.returncode == 0, ended.stderr
    assert hub.created["name"] == "tiny"
    assert hub.created.get("visibility", hub.created.get("private")) in {"private", True}
    assert set(hub.files) == {"README.md", "model.safetensors"}
    assert hub.files["model.safetensors"] == bytes(range(256))
    assert f"uploaded to {hub.url}/ada/tiny" in ended.stdout


def test_a_refused_token_says_how_to_log_in_and_that_the_folder_is_there(push, hub) -> None:
    ended = push("hf_wrong")

    assert hub.files == {}
    said = " ".join(ended.stderr.split())
    assert "model is written and could not be uploaded to ada/tiny" in said
    assert "Log in with `hf auth login`, then `hf upload ada/tiny" in said
