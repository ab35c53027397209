"""Whatever is done to files and values of others gives a result or a reason."""

import pytest
import surfaces

NAMES = (*surfaces.SURFACES, *surfaces.CALLS)
SOME = 6  # Of so many cases one is tried, unless slow ones are asked for.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "step", [SOME, pytest.param(1, marks=pytest.mark.slow)]
)
def test_a_surface_holds(name, step):
    found = surfaces.run(name, step)
    assert found
    assert [x for x in found if x[1] != "held"] == []


def test_what_does_not_hold_is_seen(tmp_path):
    """The judge of the cases, by uses that do what none may do."""

    def case(use, refused=False):
        return surfaces.verdict(surfaces.Case("", use, refused, tmp_path))[0]

    def raising(error):
        def use():
            raise error

        return use

    def chained():
        try:
            raise KeyError("x")
        except KeyError as error:
            raise ValueError("y") from error

    def lost():
        try:
            raise KeyError("x")
        except KeyError:
            raise ValueError("y") from None

    assert case(lambda: None) == "held"
    assert case(raising(ValueError("no"))) == "held"
    assert case(raising(OSError("no")), refused=True) == "held"
    assert case(raising(TypeError("no"))) == "poor"
    assert case(raising(ValueError("two\nlines"))) == "poor"
    assert case(raising(RecursionError())) == "poor"
    assert case(chained) == "held"
    assert case(lost) == "poor"
    assert case(lambda: None, refused=True) == "bad"
    assert case((tmp_path / "ran").touch) == "bad"

    path = tmp_path / "values"
    path.write_text("1")
    row = surfaces.Surface(lambda x: x, lambda x: x.read_text(), (), exact=True)
    use = surfaces.checked_use(row, path)
    assert case(use) == "held"
    path.write_text("2")
    assert case(use) == "poor"
