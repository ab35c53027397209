"""Property-based fuzzing of what users and strangers give in text and requests.

    python tests/robustness/fuzz.py --seconds 3600

or `make fuzz`. Each target takes one value that hypothesis draws, and raises
where the answer is neither a result nor one line of reason. What is found is
printed, smallest first, as a row of `FUZZED` in `cases_table.py`, which
`test_fuzz.py` gives to its target again.
"""

import argparse
import atexit
import collections
import contextlib
import functools
import io
import json
import os
import pathlib
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from unittest.mock import patch

import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit.checkpoints.engine.keras_files import read_class_names
from keras_vit.cli import main as keras_vit
from keras_vit.data import DataConfig, open_dataset
from keras_vit.explanation import file_names
from keras_vit.io.atomic_files import as_cell, of_cell, printable
from keras_vit.runs import script
from keras_vit.training import Recipe, TrainingConfig
from keras_vit.training.run import files as run_lock
from keras_vit.training.run import resume
from keras_vit.training.run.files import FILES, _file_name

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import served  # noqa: E402
import surfaces  # noqa: E402

GROWTH = 500 * 2**20  # bytes of memory of a server, by all its requests
KEYS = sorted(script._defaults(Recipe))
TEXT = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "=1+1",
        "../a",
        "\0",
        "\x1b[31m",
        "-1",
        "nan",
        "1e999",
        "null",
        "[",
        "~",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats()
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(TEXT, x, max_size=3),
    max_leaves=6,
)
# Values that say where: nothing outside of the folder of a target is written.
PLACES = ("data.data_dir", "run_dir", "data.name", "model.weights")
FREE_KEYS = [key for key in KEYS if key not in PLACES]


def recipe_from(words) -> None:
    """A recipe, or exit code 2 with one line."""
    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error):
            with contextlib.redirect_stdout(io.StringIO()):
                script.parse(Recipe, words, "A recipe.")
    except SystemExit as end:
        check_end(end.code, error.getvalue())


def check_end(code, error) -> None:
    if code not in (0, 2):
        raise AssertionError(f"exit code {code}: {error}")
    lines = [x for x in error.splitlines() if "error: " in x]
    if code == 2 and len(lines) != 1:
        raise AssertionError(f"{len(lines)} lines of reason: {error}")
    if "Traceback" in error or "\x1b" in error:
        raise AssertionError(error)


def config_file(content: str) -> None:
    """The text of a config file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "config.yaml")
        path.write_bytes(content.encode(errors="surrogatepass"))
        recipe_from(["--config", str(path)])


def nested(flat: dict) -> dict:
    result: dict = {}
    for key, value in flat.items():
        *groups, name = key.split(".")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = value
    return result


CONFIGS = st.one_of(
    st.text(max_size=60),
    VALUES.map(lambda x: yaml.safe_dump(x, allow_unicode=True)),
    st.dictionaries(st.sampled_from(FREE_KEYS), VALUES, max_size=4).map(
        lambda x: yaml.safe_dump(nested(x), allow_unicode=True)
    ),
    st.dictionaries(
        st.sampled_from(["data", "model", "training", "optimizer", "seed"]),
        VALUES,
        max_size=2,
    ).map(lambda x: yaml.safe_dump(x, allow_unicode=True)),
)


def recipe_words(words: list[str]) -> None:
    """The command line of a recipe."""
    recipe_from([x for x in words if not x.startswith("--config")])


RECIPE_WORDS = st.lists(
    st.builds(
        "--{}={}".format,
        st.sampled_from(FREE_KEYS) | TEXT,
        VALUES.map(
            lambda x: json.dumps(x) if isinstance(x, (list, dict)) else x
        ),
    )
    | TEXT,
    max_size=4,
)


def command_words(words: list[str]) -> None:
    """The command line of keras-vit, in a folder with nothing in it."""
    out, error = io.StringIO(), io.StringIO()
    before = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out):
                with contextlib.redirect_stderr(error):
                    code = keras_vit(words)
        except SystemExit as end:
            code = end.code
        finally:
            os.chdir(before)
        check_end(code, error.getvalue())
        if code and os.listdir(folder):
            raise AssertionError(f"It wrote {os.listdir(folder)}.")


COMMANDS = st.builds(
    lambda command, words: [*command, *words],
    st.sampled_from(
        [
            ["predict"],
            ["explain"],
            ["embed"],
            ["search"],
            ["summary"],
            ["plan", "--model=ViT_B16"],
            ["plan", "--paper"],
            ["weights", "info"],
            ["weights", "list"],
            ["weights", "convert"],
            ["weights", "verify", "--model=none"],
            [],
        ]
    ),
    st.lists(
        st.builds(
            "--{}={}".format,
            st.sampled_from(
                ["top", "format", "batch", "image_size", "out", "devices"]
                + ["classes", "epochs", "examples", "efficiency", "model_axis"]
                + ["discard_ratio", "kind", "blocks", "optimizer"]
            ),
            SCALARS,
        )
        | TEXT.filter(lambda x: "/" not in x and "~" not in x),
        max_size=4,
    ),
).map(lambda words: [x.replace("\0", "") for x in words])


def csv_file(content: str) -> None:
    """The text of a CSV file beside two images."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.png", "b.png"):
            Image.new("L", (4, 4)).save(pathlib.Path(folder, name))
        path = pathlib.Path(folder, "data.csv")
        path.write_bytes(content.encode(errors="surrogatepass"))
        with contextlib.suppress(ValueError):
            open_dataset(DataConfig(csv=str(path)))


CELLS = TEXT | st.sampled_from(
    ["a.png", "b.png", "0", "1", "cat", "train", '"']
)
CSVS = st.text(max_size=60) | st.lists(
    st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=16
).map(lambda x: "\n".join(["image,label,split", *x]))


def class_names(content: str) -> None:
    """The text of class_names.json in a model, and names as they are used."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        with zipfile.ZipFile(path, "w") as archive:
            given = content.encode(errors="surrogatepass")
            archive.writestr("class_names.json", given)
        try:
            with zipfile.ZipFile(path) as archive:
                names = read_class_names(path, archive)
        except ValueError:
            return
        for name in names or ():
            assert all(x.isprintable() for x in printable(name))
            assert of_cell(as_cell(name)) == name
            pathlib.Path(folder, f"{_file_name(name)}_0.png").touch()
        titles = [printable(name) for name in names or ()]
        for name in file_names(titles):
            pathlib.Path(folder, f"{name}_heads.png").touch()


NAMES = st.text(max_size=40) | (
    st.lists(TEXT | st.text(min_size=200, max_size=300), max_size=4) | VALUES
).map(json.dumps)


def run_folder(files: dict[str, str]) -> None:
    """The files of a run folder that is given to a recipe."""
    training = TrainingConfig(steps=2, batch_size=2)
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder, "run")
        recipe = Recipe(training=training, run_dir=str(place))
        own = {place / "mine.txt", place / "examples" / "mine.png"}
        for name, content in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode(errors="surrogatepass"))
        for path in own:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
        before = contents(place)
        try:
            with (
                contextlib.ExitStack() as stack,
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                stack.enter_context(patch.object(run_lock, "STALE_SECONDS", 0))
                with resume.open_run(recipe):
                    pass
        except ValueError:
            assert contents(place) == before
        assert all(path.read_text() == "mine" for path in own)


def contents(folder) -> dict:
    """All files but the lock, which goes where nobody holds it."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != run_lock.LOCK
    }


FOLDERS = st.dictionaries(
    st.sampled_from(
        [
            "keras_vit_run.json",
            "config.yaml",
            "environment.json",
            "result.json",
            "metrics.jsonl",
            "history.csv",
            "class_names.json",
            "checkpoints/step-000000002.npz",
            ".keras_vit_lock.json",
            ".previous-run/keras_vit_run.json",
        ]
    ),
    st.text(max_size=30)
    | VALUES.map(json.dumps)
    | st.lists(st.sampled_from(FILES) | TEXT, max_size=4).map(
        lambda x: json.dumps({"files": x})
    )
    | st.fixed_dictionaries(
        {"host": VALUES, "process": VALUES, "machine": st.none()}
    ).map(json.dumps),
    max_size=5,
)


@functools.cache
def fuzzed_server() -> tuple[served.Server, int]:
    """A server with little patience for all examples, and its memory."""
    place = tempfile.TemporaryDirectory()
    folder = served.save_run(pathlib.Path(place.name, "run"))
    options = ("--timeout", 1, "--body_mb", 1, "--bodies_mb", 2)
    server = served.Server(folder, *options)
    atexit.register(place.cleanup)
    atexit.register(server.process.kill)
    printed(server)  # What TensorFlow says as it is imported.
    return server, resident(server)


def printed(server) -> str:
    """What a server has written to standard error since."""
    pipe = server.process.stderr.fileno()
    found = b""
    while select.select([pipe], [], [], 0)[0]:
        piece = os.read(pipe, 2**16)
        if not piece:
            break
        found += piece
    return found.decode(errors="replace")


def resident(server) -> int:
    """The bytes of memory that a server has."""
    path = pathlib.Path(f"/proc/{server.process.pid}/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def server_bytes(given: tuple) -> None:
    """What a client sends, piece by piece, and the seconds between."""
    pieces, pause = given
    (server, before), received = fuzzed_server(), b""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(0.03)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for piece in pieces:
                client.sendall(piece)
                time.sleep(pause * (piece is not pieces[-1]))
            while more := client.recv(2**16):
                received += more
    statuses = [x[:3] for x in received.split(b"HTTP/1.1 ")[1:]]
    if b"500" in statuses or (received and not statuses):
        raise AssertionError(f"{received[:300]!r}, {printed(server)}")
    begin = time.monotonic()
    status, _, content = server.ask("GET", "/health")
    if status != 200 or time.monotonic() - begin > 5:
        raise AssertionError(f"/health: {status} {content}")
    if text := printed(server):
        raise AssertionError(text)
    if (grown := resident(server) - before) > GROWTH:
        raise AssertionError(f"The server has grown by {grown:,} bytes.")
    for name in ("taken_images", "body_bytes"):
        end = time.monotonic() + 5
        while server.values()[f"keras_vit_{name}"]:
            if time.monotonic() > end:
                raise AssertionError(f"{name} is not 0")
            time.sleep(0.02)


def request(line: bytes, body: bytes = b"", *headers: bytes) -> bytes:
    lines = [line + b" HTTP/1.1", b"Host: localhost", *headers]
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


PICTURE = served.encoded(served.picture(0))
FORM, FORM_TYPE = served.form([("a.png", PICTURE)], [("note", "text")])
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(PICTURE), PICTURE)
POST = b"POST /predict?top=3"
VALID = [
    request(b"GET /health"),
    request(b"GET /model") + request(b"GET /"),
    request(POST, PICTURE, b"Content-Type: image/png"),
    request(b"POST /explain", PICTURE, b"Content-Type: image/png"),
    request(POST, FORM, b"Content-Type: " + FORM_TYPE.encode()),
    request(
        POST, served.as_json([PICTURE] * 2), b"Content-Type: application/json"
    ),
    request(
        POST,
        b"",
        b"Content-Type: image/png",
        b"Transfer-Encoding: chunked",
    )
    + CHUNKS,
]
PARTS = st.binary(max_size=12) | st.sampled_from(
    [
        b"\r\n",
        b"\r\n\r\n",
        b"\0",
        b"Host: evil.example\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Encoding: gzip\r\n",
        b'"',
        b",",
        b"[" * 5000,
        b"--",
        b"9" * 30,
        b"%ff%00",
        b"/../",
        b"NaN",
        b"\xff\xfe",
        b"X: " + b"a" * 70_000 + b"\r\n",
    ]
)
# Where of 1000, how many bytes are left out, and what is put there.
EDITS = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.sampled_from([0, 0, 1, 2, 8, 100]),
        PARTS,
    ),
    max_size=4,
)


def edited(content: bytes, edits: list, cuts: list[int]) -> list[bytes]:
    for place, count, part in edits:
        start = place * len(content) // 1000
        content = content[:start] + part + content[start + count :]
    places = sorted(cut * len(content) // 1000 for cut in cuts)
    ends = [*places, len(content)]
    return [content[i:j] for i, j in zip([0, *places], ends, strict=True)]


PIECES = st.builds(
    edited,
    st.lists(st.sampled_from(VALID), min_size=1, max_size=3).map(b"".join),
    EDITS,
    st.lists(st.integers(0, 1000), max_size=3),
) | st.binary(max_size=200).map(lambda x: [x])
# Longer than the server waits, too.
PAUSES = st.sampled_from([0] * 10 + [0.01] * 10 + [0.3, 1.5])
REQUESTS = st.tuples(PIECES, PAUSES)

# Where of a million, how many bytes are left out, and what is put there.
FILE_EDITS = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.sampled_from([0, 1, 1, 2, 4, 8, 100, 2**30]),
        st.binary(max_size=8)
        | st.sampled_from(
            [
                *(b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7),
                *(b"\0" * 512, b"[" * 5000, b"{", b"}", b'"', b",", b":"),
                *(b"9" * 30, b"-1", b"1e999", b"NaN", b"null", b"\\ud800"),
                *(b"../", b"&a", b"*a", b"!!python/name:os.system", b"\n- "),
            ]
        ),
    ),
    min_size=1,
    max_size=3,
)
# Which field, counted through, and what is there then; "-" is nothing.
FIELD_EDITS = st.lists(
    st.tuples(st.integers(0, 100), st.just("-") | VALUES),
    min_size=1,
    max_size=3,
)


def seconds(limit: int, function):
    """Call a function, and raise where it takes longer."""

    def late(number, frame):
        raise AssertionError(f"It takes longer than {limit} s.")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        return function()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@functools.cache
def prepared(name):
    """A folder with the good file of a surface, the file and its use."""
    place = tempfile.TemporaryDirectory()
    atexit.register(place.cleanup)
    folder = pathlib.Path(place.name)
    row = surfaces.SURFACES[name]
    path = row.make(folder)
    use = surfaces.checked_use(row, path)
    return folder, path, path.read_bytes(), use


def reader(given: tuple) -> None:
    """A surface of `surfaces.py`, and what is changed in its good file."""
    name, edits = given
    folder, path, good, use = prepared(name)
    of_fields = edits and len(edits[0]) == 2
    path.write_bytes((with_fields if of_fields else with_bytes)(good, edits))
    case = surfaces.Case(name, lambda: seconds(20, use), False, folder)
    try:
        verdict, reason = surfaces.verdict(case)
    finally:
        path.write_bytes(good)
    if verdict != "held":
        raise AssertionError(f"{name}: {verdict}: {reason}")


def with_bytes(content, edits):
    for place, count, part in edits:
        start = place * len(content) // 10**6
        content = content[:start] + part + content[start + count :]
    return content


def with_fields(content, edits):
    """The JSON of an object with other values."""
    whole = json.loads(content)
    for number, value in edits:
        places = [*_places(whole)]
        if places:
            inside, key = places[number % len(places)]
            if value == "-":
                del inside[key]
            else:
                inside[key] = value
    return json.dumps(whole).encode(errors="replace")


def _places(content):
    keys = content if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], (dict, list)):
            yield from _places(content[key])


def edits_of(name):
    kinds = surfaces.SURFACES[name].kinds
    edits = FIELD_EDITS if "fields" in kinds else FILE_EDITS
    if len(kinds) > 1:  # Those of one are no files.
        edits |= FILE_EDITS
    return st.tuples(st.just(name), edits.map(tuple))


READINGS = st.sampled_from([*surfaces.SURFACES]).flatmap(edits_of)

TARGETS = {
    "config_file": (config_file, CONFIGS),
    "recipe_words": (recipe_words, RECIPE_WORDS),
    "command_words": (command_words, COMMANDS),
    "csv_file": (csv_file, CSVS),
    "class_names": (class_names, NAMES),
    "run_folder": (run_folder, FOLDERS),
    "reader": (reader, READINGS),
    "server_bytes": (server_bytes, REQUESTS),
}


tried: collections.Counter = collections.Counter()


def fuzz(
    name: str, examples: int, number: int | None = None, **options
) -> tuple | None:
    """Tries examples of a target; (input, error) of the smallest that fails."""
    target, strategy = TARGETS[name]
    last: list = []

    @settings(
        max_examples=examples,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
        ],
        **options,
    )
    @given(strategy)
    def trial(value):
        tried[name] += 1
        last[:] = [value]
        target(value)

    try:
        (trial if number is None else seed(number)(trial))()
    except Exception:
        return last[0], traceback.format_exc()
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--examples", type=int, default=200, help="per round")
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=[*TARGETS]
    )
    asked = parser.parse_args()
    end, found, number = time.monotonic() + asked.seconds, {}, asked.seed
    while time.monotonic() < end:
        for name in asked.targets:
            if time.monotonic() >= end:
                break
            failed = fuzz(name, asked.examples, number)
            number += 1
            if failed and (name, repr(failed[0])) not in found:
                found[name, repr(failed[0])] = failed[1]
                print(f"{failed[1]}\n    Finding({name!r}, {failed[0]!r}),")
                sys.stdout.flush()
    if "server_bytes" in tried:
        server, before = fuzzed_server()
        grown = (resident(server) - before) / 2**20
        print(f"The server has grown by {grown:.0f} MiB.")
    for name, count in tried.items():
        print(f"{count:9,} {name}")
    print(f"{tried.total():9,} examples, {len(found)} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
