"""What the tests of the command share."""

from keras_vit.cli import main


def run(capsys, *arguments) -> str:
    """What a command prints when it succeeds."""
    assert main(["weights", *map(str, arguments)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def fail(capsys, *arguments) -> str:
    """The one line that a command that fails leaves."""
    assert main(["weights", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("keras-vit: error: ")
    assert error.count("\n") == 1
    return error
