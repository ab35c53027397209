"""Results of benchmarks/compiled.py as Markdown.

python benchmarks/compiled_table.py benchmarks/results/compiled_*.json
"""

import json
import pathlib
import sys

COLUMNS = (
    "| {} | TFLOP | HBM GB | accessed GB | functions, 10^9 | peak MiB | "
    "products / memory, ms | utilisation at most |"
)


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
    lines = [COLUMNS.format(title(result)), f"|---{'|--:' * 7}|"]
    for name, side in result["sides"].items():
        lines.append(
            f"| {name} | {side['flops'] / 1e12:.2f} | "
            f"{side['hbm_bytes'] / 1e9:.2f} | "
            f"{side['bytes_accessed'] / 1e9:.1f} | "
            f"{side['transcendentals'] / 1e9:.2f} | "
            f"{side['peak_bytes'] / 2**20:,.0f} | "
            f"{side.get('milliseconds_of_products', '')} / "
            f"{side.get('milliseconds_of_memory', '')} | "
            f"{side.get('utilisation_at_most', 0):.0%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(table(json.loads(pathlib.Path(name).read_text())), end="\n\n")
