"""Results of benchmarks/compiled.py as Markdown.

python benchmarks/compiled_table.py benchmarks/results/compiled_*.json
"""

import json
import pathlib
import sys

# Their headings, and what of a side each has.
COLUMNS = {
    "TFLOP": lambda side: f"{side['flops'] / 1e12:.2f}",
    "HBM GB": lambda side: f"{side['hbm_bytes'] / 1e9:.2f}",
    "accessed GB": lambda side: f"{side['bytes_accessed'] / 1e9:.1f}",
    "functions, 10^9": lambda side: f"{side['transcendentals'] / 1e9:.2f}",
    "peak MiB": lambda side: f"{side['peak_bytes'] / 2**20:,.0f}",
    "products / memory, ms": lambda side: (
        f"{side.get('milliseconds_of_products', '')} / "
        f"{side.get('milliseconds_of_memory', '')}"
    ),
    "utilisation at most": lambda side: (
        f"{side.get('utilisation_at_most', 0):.0%}"
    ),
}
ESTIMATED = "estimated_cycles"
CYCLES = {"cycles, 10^6": lambda side: f"{side[ESTIMATED] / 1e6:,.1f}"}


def title(result: dict) -> str:
    """What a result is of, in words."""
    shared = result["distribution"]
    return (
        f"{result['task']}, {result['model']} at {result['image_size']}, batch "
        f"{result['batch']}, {result['topology']}"
        f"{'' if shared == 'single' else f', {shared}'}"
    )


def table(result: dict) -> str:
    """One case: a row for each side.

    Args:
        result: of benchmarks/compiled.py.

    Returns:
        str, a table in Markdown.
    """
    sides = result["sides"]
    columns = COLUMNS
    if all(side.get(ESTIMATED) for side in sides.values()):
        columns = COLUMNS | CYCLES
    rows = [[title(result), *columns], ["---", *["--:"] * len(columns)]]
    for name, side in sides.items():
        rows.append([name, *(cell(side) for cell in columns.values())])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines[1] = lines[1].replace(" ", "")
    return "\n".join(lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(table(json.loads(pathlib.Path(name).read_text())), end="\n\n")
