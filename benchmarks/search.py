"""Times the search of a million embeddings against faiss, where it is there.

    pip install faiss-cpu
    KERAS_BACKEND=torch python benchmarks/search.py
    ... --count 1000000 --size 512 --out benchmarks/results/search.json

The vectors are mapped from a file of `keras-vit embed`'s format, which is
written anew; one query at a time, the sides in turn. faiss searches a copy of
the vectors in memory, of length 1, and compares inner products.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

from keras_vit.io.atomic_files import write_json
from keras_vit.prediction import embeddings_file, load_embeddings, nearest
from keras_vit.runtime.machine import versions

PIECE = 10_000
ROUNDS = 15


def written(folder: pathlib.Path, count: int, size: int) -> pathlib.Path:
    """Write a file of random embeddings."""
    random = np.random.default_rng(0)
    path = folder / "embeddings.npz"
    files = tuple(f"photos/{i:07d}.jpg" for i in range(count))
    pieces = (
        random.normal(size=(min(PIECE, count - x), size)).astype("float32")
        for x in range(0, count, PIECE)
    )
    embeddings_file._write_npz(path, files, pieces, {"kind": "pooled"})
    return path


def sides(found) -> dict:
    """Make a function from a query to the numbers of its hits for each side."""
    lengths = found.lengths
    made = {
        "keras_vit": lambda x: nearest(found.vectors, x, lengths=lengths)[0]
    }
    if importlib.util.find_spec("faiss"):
        faiss = importlib.import_module("faiss")
        index = faiss.IndexFlatIP(found.vectors.shape[1])
        index.add(found.vectors / lengths[:, None])
        made["faiss"] = lambda x: index.search(x, 9)[1]
    return made


def other_versions() -> dict:
    """Return the version of faiss, where it is there."""
    if not importlib.util.find_spec("faiss"):
        return {}
    return {"faiss-cpu": importlib.metadata.version("faiss-cpu")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = written(pathlib.Path(folder), options.count, options.size)
        begin = time.perf_counter()
        found = load_embeddings(path)
        opening = time.perf_counter() - begin
        searches, same = sides(found), True
        seconds: dict = {name: [] for name in searches}
        for _ in range(ROUNDS):
            query = random.normal(size=(1, options.size)).astype("float32")
            hits = {}
            for name, search in searches.items():
                begin = time.perf_counter()
                hits[name] = search(query).tolist()
                seconds[name].append(time.perf_counter() - begin)
            same = same and len({str(x) for x in hits.values()}) == 1
    result = {
        "count": options.count,
        "size": options.size,
        "seconds to open": round(opening, 3),
        "seconds": {
            name: round(statistics.median(x), 4) for name, x in seconds.items()
        },
        "same hits": same,
        "versions": versions() | other_versions(),
        "processors": os.cpu_count(),
    }
    print(result)
    if options.out:
        write_json(options.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
