"""Makes docs/images/audit.png: wrong labels that an audit of the digits finds.

python tools/make_audit_picture.py
"""

import pathlib
import sys
import tempfile

import numpy as np
from PIL import Image

import keras_vit
from keras_vit.analysis import plot_images

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

import planted  # noqa: E402

SHOWN = 10
SEED = 0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "digits")
        planted.write_flipped_digits(data, SEED)
        found = keras_vit.audit(data, out=pathlib.Path(folder, "page"))
        errors = [x for x in found.findings if x.finding == "label"][:SHOWN]
        images = [np.asarray(Image.open(data / x.image)) for x in errors]
    titles = [f"labelled {x.label}, is {x.suggested}?" for x in errors]
    figure = plot_images(np.stack(images)[..., None], titles)
    figure.savefig(ROOT / "docs" / "images" / "audit.png", dpi=80)
    return 0


if __name__ == "__main__":
    sys.exit(main())
