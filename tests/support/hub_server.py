"""A server on this machine that speaks as much of the hub's API as we use.

Repositories, branches, commits with small and large files, listings and
downloads, as huggingface_hub 2 asks for them. Faults on demand.
"""

import base64
import hashlib
import json
import re
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_ofTheTestsAndNowhereElse"
LARGE = (".safetensors", ".keras", ".h5", ".png")


class Hub(ThreadingHTTPServer):
    """Repositories in memory: name -> branch -> [(commit, files), ...]."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, list]] = {}
        self.private: dict[str, bool] = {}
        self.messages: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.sent: dict[str, int] = {}  # path of a file -> bytes of it
        self.role = "write"
        self.fails_every: int | None = None
        self.fails_first = False  # each request, until it is asked again
        self.loses_commits = 0  # answers to commits that do not arrive
        self.refuses: dict[str, int] = {}  # part of a path -> status

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """A client that has what it wants closes the connection."""

    def make(self, name, files=(), private=False):
        self.repositories.setdefault(name, {"main": []})
        self.private.setdefault(name, bool(private))
        self.write(name, "main", {".gitattributes": b"", **dict(files)})

    def write(self, name, branch, files):
        commits = self.repositories[name].setdefault(branch, [])
        files = {**self.files(name, branch), **files}
        files = {x: y for x, y in files.items() if y is not None}
        content = repr((name, branch, len(commits), sorted(files.items())))
        commit = hashlib.sha1(content.encode()).hexdigest()
        commits.append((commit, files))
        return commit

    def files(self, name, branch="main") -> dict[str, bytes]:
        commits = self.repositories[name][branch]
        return commits[-1][1] if commits else {}

    def found(self, name, revision) -> tuple[str, dict] | None:
        branches = self.repositories[name]
        if revision in branches and branches[revision]:
            return branches[revision][-1]
        commits = [x for commits in branches.values() for x in commits]
        return next((x for x in commits if x[0] == revision), None)


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def answer(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        length = int(self.headers["Content-Length"] or 0)
        body = self.rfile.read(length)
        hub = self.server
        request = f"{self.command} {path}"
        fails = hub.fails_first and request not in hub.requests
        hub.requests.append(request)
        if hub.fails_every:
            fails = len(hub.requests) % hub.fails_every == 0
        if fails:
            return self.say(503, {"error": "busy"})
        for part, status in hub.refuses.items():
            if part in path:
                return self.say(status, {"error": f"no: {self.token}"})
        if not path.startswith("/objects") and self.token != TOKEN:
            return self.say(401, {"error": "Invalid credentials"})
        for pattern, method in ROUTES.items():
            if found := re.fullmatch(pattern, f"{self.command} {path}"):
                return method(self, body, **found.groupdict())
        self.say(404, {"error": f"no such thing: {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    @property
    def token(self) -> str:
        return (self.headers["Authorization"] or "").removeprefix("Bearer ")

    def say(self, status, content, headers=()):
        is_bytes = isinstance(content, bytes)
        body = content if is_bytes else json.dumps(content).encode()
        headers = {"Content-Length": len(body), **dict(headers)}
        if not is_bytes:
            headers["Content-Type"] = "application/json"
        if status >= 400:
            headers["X-Error-Message"] = str(content.get("error"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass

    def missing(self, code):
        self.say(404, {"error": "not found"}, {"X-Error-Code": code})

    def whoami(self, body):
        access = {"accessToken": {"role": self.server.role}}
        orgs = [{"name": "museum"}]
        user = {"type": "user", "name": "me", "orgs": orgs, "auth": access}
        self.say(200, user)

    def access(self, body, name):
        if name.partition("/")[0] not in ("me", "museum"):
            return self.say(403, {"error": "Forbidden"})
        self.say(200, {})

    def create(self, body):
        asked = json.loads(body)
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in self.server.repositories:
            return self.say(409, {"error": "You already created this"})
        private = asked.get("visibility") == "private" or asked.get("private")
        self.server.make(name, private=private)
        self.say(200, {"url": f"{self.server.url}/{name}"})

    def branch(self, body, name, revision):
        self.server.write(name, revision, self.server.files(name))
        self.say(200, {})

    def info(self, body, name, revision="main"):
        if name not in self.server.repositories:
            return self.missing("RepoNotFound")
        found = self.server.found(name, revision)
        if found is None:
            return self.missing("RevisionNotFound")
        siblings = [{"rfilename": x} for x in found[1]]
        private = self.server.private[name]
        self.say(
            200,
            {
                "id": name,
                "sha": found[0],
                "siblings": siblings,
                "private": private,
                "tags": [],
            },
        )

    def tree(self, body, name, revision, folder=None):
        found = self.server.found(name, revision)
        if found is None:
            return self.missing("RevisionNotFound")
        inside = f"{folder}/" if folder else ""
        entries = [
            {
                "type": "file",
                "path": path,
                "size": len(content),
                "oid": hashlib.sha1(content).hexdigest(),
            }
            for path, content in found[1].items()
            if path.startswith(inside)
        ]
        if folder and not entries:
            return self.missing("EntryNotFound")
        self.say(200, entries)

    def resolve(self, body, name, revision, path):
        if name not in self.server.repositories:
            return self.missing("RepoNotFound")
        found = self.server.found(name, revision)
        if found is None:
            return self.missing("RevisionNotFound")
        if path not in found[1]:
            return self.missing("EntryNotFound")
        content = found[1][path]
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": found[0],
        }
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        if asked:
            content = content[int(asked[1]) : int(asked[2]) + 1]
        self.server.sent[path] = self.server.sent.get(path, 0) + len(content)
        self.say(206 if asked else 200, content, headers)

    def preupload(self, body, name, revision):
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs"
                if file["path"].endswith(LARGE)
                else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self.say(200, {"files": files})

    def batch(self, body, name):
        def action(asked):
            address = f"{self.server.url}/objects/{asked['oid']}?sign=secret"
            upload = {"upload": {"href": address}}
            if asked["oid"] in self.server.objects:
                return asked
            return {**asked, "actions": upload}

        asked = json.loads(body)["objects"]
        answer = {"transfer": "basic", "objects": [action(x) for x in asked]}
        self.say(200, answer)

    def put(self, body, oid):
        if hashlib.sha256(body).hexdigest() != oid:
            return self.say(400, {"error": "damaged"})
        self.server.objects[oid] = body
        self.say(200, {})

    def commit(self, body, name, revision):
        files = {}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                self.server.messages.append(value["summary"])
                parent = value.get("parentCommit")
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            elif entry["key"] == "deletedFile":
                files[value["path"]] = None
        newest = self.server.repositories[name][revision][-1][0]
        if parent not in (None, newest):
            return self.say(412, {"error": "A commit has happened since"})
        oid = self.server.write(name, revision, files)
        if self.server.loses_commits:
            self.server.loses_commits -= 1
            return self.say(504, {"error": "too late"})
        url = f"{self.server.url}/{name}/commit/{oid}"
        self.say(200, {"commitOid": oid, "commitUrl": url, "success": True})


NAME = r"(?P<name>[^/]+/[^/]+)"
OF_DATA = rf"/api/datasets/{NAME}"
ROUTES = {
    rf"GET {OF_DATA}": Handler.info,
    rf"GET {OF_DATA}/revision/(?P<revision>.+)": Handler.info,
    rf"GET {OF_DATA}/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?": (
        Handler.tree
    ),
    rf"GET /datasets/{NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)": (
        Handler.resolve
    ),
    r"GET /api/whoami-v2": Handler.whoami,
    r"POST /api/validate-yaml": lambda self, body: self.say(200, {}),
    rf"GET /api/models/{NAME}/auth-check/write": Handler.access,
    r"POST /api/repos/create": Handler.create,
    rf"POST /api/models/{NAME}/branch/(?P<revision>.+)": Handler.branch,
    rf"POST /api/models/{NAME}/preupload/(?P<revision>.+)": Handler.preupload,
    rf"POST /api/models/{NAME}/commit/(?P<revision>.+)": Handler.commit,
    rf"GET /api/models/{NAME}": Handler.info,
    rf"GET /api/models/{NAME}/revision/(?P<revision>.+)": Handler.info,
    rf"GET /api/models/{NAME}/tree/(?P<revision>[^/]+)": Handler.tree,
    rf"POST /{NAME}\.git/info/lfs/objects/batch": Handler.batch,
    r"PUT /objects/(?P<oid>\w+)": Handler.put,
    rf"(?:GET|HEAD) /{NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)": (
        Handler.resolve
    ),
}
