"""Runs `keras-vit`, and ends it: the program, and `python -m keras_vit.cli`."""

import atexit
import os
import sys

from keras_vit.cli.command_line import main

__all__ = ["program"]


def program() -> None:
    """Runs `keras-vit` and ends the process with its exit code.

    The process ends once everything is written and what libraries do at exit
    is done: to take the interpreter apart, module by module, takes 0.2 s with
    torch.
    """
    codes: list[int] = []
    atexit.register(_end, codes)  # Run last, as it is registered first.
    codes.append(main())
    sys.exit(codes[0])


def _end(codes: list[int]) -> None:
    if codes:  # Else an exception ends it, which Python has not printed yet.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # It was closed before the start.
                stream.flush()
        os._exit(codes[0])


if __name__ == "__main__":
    program()
