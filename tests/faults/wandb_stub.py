"""A W&B server on this machine that is as good or as bad as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Long enough for whatever waits for an answer to give up.
DELAY = 120.0
API_KEY = "c0ffee" * 6 + "c0de"
VIEWER = {
    "id": "viewer",
    "entity": "nobody",
    "username": "nobody",
    "email": "nobody@localhost",
    "flags": "{}",
    "teams": {"edges": []},
}


class Server(ThreadingHTTPServer):
    """Answers the client well, or with errors (500), delays, or connections cut (cut).

    Attributes:
        mood: well, 500, delay or cut; it may be changed at any time.
        turns: the mood it falls into once it has let a run in, if any.
        exit_codes: how each run that ended says it ended, by its id.
        rows: the rows each run sent, by its id.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, mood: str, turns: str | None) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.mood = mood
        self.turns = turns
        self.exit_codes: dict[str, int] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""


class Answers(BaseHTTPRequestHandler):
    """One connection to the server."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a query, or take what a run sends of itself."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        mood = self.server.mood
        if mood == "delay":
            self.server.closing.wait(DELAY)
        if mood in ("delay", "cut"):
            self.close_connection = True
        elif mood == "500":
            self._answer(500, {"error": "the stub is out of order"})
        else:
            self._answer(200, self._well(body))
            if self.server.turns and b"UpsertBucket" in body:
                self.server.mood = self.server.turns

    do_GET = do_PUT = do_POST

    def _well(self, body: bytes) -> dict[str, Any]:
        if self.path.endswith("/file_stream"):
            return self._take(self.path.split("/")[-2], json.loads(body))
        if self.path != "/graphql":
            return {}
        asked = json.loads(body)
        return {"data": self._data(asked["query"], asked.get("variables") or {})}

    def _data(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        words = query.split()
        if "UpsertBucket" in words:
            return _bucket(variables)
        if "Viewer" in words:
            return {"viewer": VIEWER}
        if "ServerFeaturesQuery" in words:
            return {"serverInfo": {"features": []}}
        if "CreateRunFiles" in words:
            files = [{"name": n, "uploadUrl": f"{self.server.url}/up"} for n in variables["files"]]
            return {"createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}}
        return {"model": None, "viewer": VIEWER}

    def _take(self, run: str, sent: dict[str, Any]) -> dict[str, Any]:
        history = (sent.get("files") or {}).get("wandb-history.jsonl") or {"content": []}
        rows = [json.loads(line) for line in history["content"]]
        self.server.rows.setdefault(run, []).extend(rows)
        if sent.get("complete"):
            self.server.exit_codes[run] = sent.get("exitcode", 0)
        return {}

    def _answer(self, code: int, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _bucket(variables: dict[str, Any]) -> dict[str, Any]:
    entity = {"id": "entity", "name": "nobody"}
    project = {"id": "project", "name": variables.get("project") or "p", "entity": entity}
    bucket = {
        "id": "bucket",
        "name": variables.get("name"),
        "displayName": variables.get("displayName") or variables.get("name"),
        "description": "",
        "config": variables.get("config") or "{}",
        "sweepName": None,
        "project": project,
        "historyLineCount": 0,
    }
    return {"upsertBucket": {"bucket": bucket, "inserted": True}}


@contextmanager
def serving(mood: str = "well", turns: str | None = None) -> Iterator[Server]:
    """Run a server for as long as the block lasts."""
    server = Server(mood, turns)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
