"""`python -m keras_vit.cli`, where `keras-vit` is not on the path."""

import sys

from keras_vit.cli.command_line import main

sys.exit(main())
