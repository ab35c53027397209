"""Mutations of files, as transmission or an attacker makes them."""

from hypothesis import strategies as st

__all__ = ["CHANGES", "mutated"]

# The start holds headers, the end the directory of a zip.
POSITIONS = st.one_of(
    st.integers(0, 3000),
    st.integers(-3000, -1),
    st.floats(0, 1, exclude_max=True),
)
CHANGE = st.tuples(
    st.sampled_from(["flip", "cut", "insert", "zero", "text"]),
    POSITIONS,
    st.binary(min_size=1, max_size=8),
)
CHANGES = st.lists(CHANGE, min_size=1, max_size=3)


def mutated(data, changes):
    data = bytearray(data)
    for kind, position, payload in changes:
        if not data:
            return data
        if isinstance(position, float):
            position = int(position * len(data))
        i = position % len(data)
        match kind:
            case "flip":
                data[i] ^= payload[0] or 1
            case "cut":
                del data[i:]
            case "insert":
                data[i:i] = payload
            case "zero":
                data[i : i + 64] = bytes(len(data[i : i + 64]))
            case "text":
                digits = bytes(48 + x % 10 for x in payload)
                data[i : i + len(digits)] = digits
    return data
