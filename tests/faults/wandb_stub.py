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
# Short enough for that.
MOMENT = 2.0
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
        troubles: its moods for the next requests, one each, before the lasting one; late is well
            after a moment.
        exit_codes: how each run that ended says it ended, by its id.
        rows: the rows each run sent, by its id.
        runs: what was said of each run, by its id: its names, config, tags and summary.
        files: the files each run sent, by its id.
        asked: the names of the queries, in order.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, mood: str, turns: str | None) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.mood = mood
        self.turns = turns
        self.troubles: list[str] = []
        self.exit_codes: dict[str, int] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []
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
        mood = self.server.troubles.pop(0) if self.server.troubles else self.server.mood
        if mood == "late":
            self.server.closing.wait(MOMENT)
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

    def _well(self, body: bytes) -> Any:
        if self.path.endswith("/file_stream"):
            return self._take(self.path.split("/")[-2], json.loads(body))
        if self.path.startswith("/files/"):
            return self._file(self.path.removeprefix("/files/"), body)
        if self.path != "/graphql":
            return {}
        asked = json.loads(body)
        return {"data": self._data(asked["query"], asked.get("variables") or {})}

    def _data(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        words = query.replace("(", " ").split()
        self.server.asked.append(
            words[words.index("query" if "query" in words else "mutation") + 1]
        )
        if "UpsertBucket" in words:
            known = self.server.runs.setdefault(variables["name"], {})
            known |= {key: value for key, value in variables.items() if value is not None}
            return _bucket(variables)
        if "Runs" in words:
            return {"project": self._found(variables)}
        if "RunHistoryKeys" in words:
            return {"project": {"run": self._node(variables["name"], {})}}
        if "RunParquetHistory" in words:
            # All is live, and none of it exported.
            live = [{"_step": 0}]
            history: Any = {"parquetHistory": {"parquetUrls": [], "liveData": live}}
            return {"project": {"run": history}}
        if "HistoryPage" in words:
            history = {"history": self._page(variables)}
            return {"project": {"run": history}}
        if "ArtifactType" in words:
            return {"project": {"artifact": None}}
        if "CreateArtifact" in words:
            # Known already, as it were: nothing of it is sent.
            latest = {"latestArtifact": {"id": "a"}}
            artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": latest}
            return {"createArtifact": {"artifact": artifact}}
        if "RunFiles" in words:
            return {"project": {"run": self._listed(variables)}}
        if "Viewer" in words:
            return {"viewer": VIEWER}
        if "ServerFeaturesQuery" in words:
            return {"serverInfo": {"features": []}}
        if "CreateRunFiles" in words:
            place = f"{self.server.url}/files/{variables['run']}"
            files = [{"name": n, "uploadUrl": f"{place}/{n}"} for n in variables["files"]]
            return {"createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}}
        return {"model": None, "viewer": VIEWER}

    def _found(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the runs of a group, as the public API lists them."""
        group = json.loads(variables["filters"])["group"]
        named = {n: run for n, run in self.server.runs.items() if run.get("groupName") == group}
        edges = [{"node": self._node(n, run), "cursor": n} for n, run in named.items()]
        page = {"endCursor": None, "hasNextPage": False}
        runs = {"edges": edges, "pageInfo": page}
        return {"internalId": "1", "runCount": len(edges), "readOnly": False, "runs": runs}

    def _node(self, name: str, run: dict[str, Any]) -> dict[str, Any]:
        rows = self.server.rows.get(name, [])
        return {
            "id": name,
            "projectId": "1",
            "name": name,
            "displayName": run.get("displayName"),
            "group": run.get("groupName"),
            "jobType": run.get("jobType"),
            "tags": run.get("tags") or [],
            "state": "finished" if self.server.exit_codes.get(name) == 0 else "failed",
            "config": run.get("config") or "{}",
            "summaryMetrics": run.get("summary") or "{}",
            "historyLineCount": len(rows),
            "historyKeys": {"lastStep": rows[-1]["_step"] if rows else -1, "keys": {}},
            "user": {"name": "nobody", "username": "nobody"},
            "readOnly": False,
        }

    def _page(self, variables: dict[str, Any]) -> list[str]:
        """Return the rows between two steps of the client's, as the public API does."""
        rows = self.server.rows.get(variables["run"], [])
        steps = range(variables["minStep"], variables["maxStep"])
        return [json.dumps(row) for row in rows if row["_step"] in steps]

    def _listed(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the files of a run that were asked for, as the public API lists them."""
        run = variables["name"]
        names = [n for n in self.server.files.get(run, {}) if n in variables["fileNames"]]
        nodes = [
            {
                "id": name,
                "name": name,
                "url": f"{self.server.url}/files/{run}/{name}",
                "directUrl": f"{self.server.url}/files/{run}/{name}",
                "sizeBytes": len(self.server.files[run][name]),
                "mimetype": "",
                "updatedAt": None,
                "md5": None,
            }
            for name in names
        ]
        edges = [{"node": node, "cursor": node["name"]} for node in nodes]
        page = {"endCursor": None, "hasNextPage": False}
        return {"fileCount": len(nodes), "files": {"edges": edges, "pageInfo": page}}

    def _file(self, place: str, body: bytes) -> Any:
        """Keep a file that is sent, or return one that is asked for."""
        run, _, name = place.partition("/")
        if self.command == "GET":
            return self.server.files[run][name]
        self.server.files.setdefault(run, {})[name] = body
        return {}

    def _take(self, run: str, sent: dict[str, Any]) -> dict[str, Any]:
        history = (sent.get("files") or {}).get("wandb-history.jsonl") or {"content": []}
        rows = [json.loads(line) for line in history["content"]]
        self.server.rows.setdefault(run, []).extend(rows)
        summary = (sent.get("files") or {}).get("wandb-summary.json") or {"content": []}
        for line in summary["content"]:
            self.server.runs.setdefault(run, {})["summary"] = line
        if sent.get("complete"):
            self.server.exit_codes[run] = sent.get("exitcode", 0)
        return {}

    def _answer(self, code: int, value: Any) -> None:
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
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
