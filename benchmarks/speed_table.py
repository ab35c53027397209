"""Results of benchmarks/speed.py as Markdown.

    python benchmarks/speed_table.py benchmarks/results/speed_*.json

Images a second are the median of the rounds, with the slowest and the fastest
round; the share is of the matrix products' rate, measured in the same process.
"""

import json
import pathlib
import sys

COLUMNS = (
    "| {} | images/s | share of the products' rate | peak MiB | first step |"
)


def title(case: dict) -> str:
    """What a case measures, in words."""
    limit = f", {case['limit'].upper()}" if case.get("limit") else ""
    return (
        f"{case['task']}, {case['model']} at {case['image_size']}, batch "
        f"{case['batch']}, {case['precision']}{limit}"
    )


def table(case: dict) -> str:
    """One case: the sides, and ours over each peer's images a second.

    Args:
        case: of a result of benchmarks/speed.py.

    Returns:
        str, a table in Markdown.
    """
    lines = [COLUMNS.format(title(case)), "|---|--:|--:|--:|--:|"]
    for name, side in case["sides"].items():
        fastest, slowest = side["fastest_and_slowest"]
        lines.append(
            f"| {name} | {side['images_per_second']:.2f} ({slowest:.2f} to "
            f"{fastest:.2f}) | {side['utilisation']:.0%} | {side['peak_mib']:,}"
            f" | {side['seconds_to_first_step']:.0f} s |"
        )
    return "\n".join(lines)


def ratios(case: dict) -> str:
    """Ours over each peer's images a second, as a list in Markdown.

    Args:
        case: of a result of benchmarks/speed.py.

    Returns:
        str, a line a pair.
    """
    return "\n".join(
        f"- {pair}: {value:.2f}" for pair, value in case["ratios"].items()
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for case in json.loads(pathlib.Path(name).read_text())["cases"]:
            print(table(case), ratios(case), sep="\n\n", end="\n\n")
