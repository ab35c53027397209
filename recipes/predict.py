"""Names what is in images with a model from a run folder.

    python recipes/predict.py runs/quickstart digit.png another.jpg

prints the most probable classes of each image. The images are resized as the
training images were; the digits are bright on black.
"""

import argparse
import pathlib
import sys

import numpy as np

from keras_vit.data import read_image
from keras_vit.evaluation import predict_probabilities
from keras_vit.training import model_file
from keras_vit.training.command_line import fail


def predict(
    run_folder: str, images: list[str], top_k: int = 3
) -> list[list[tuple[str, float]]]:
    """Classifies image files.

    Args:
        run_folder: folder that recipes/finetune.py wrote.
        images: paths of image files of any kind that Pillow opens.
        top_k: how many classes to name.

    Returns:
        For each image the top_k (class name, probability), most probable
        first.

    Raises:
        ValueError: when the folder holds no model, an image is missing or
            broken, or top_k is not positive.
    """
    if top_k < 1:
        raise ValueError(f"top_k must be above 0. Received: top_k={top_k}.")
    model, class_names = model_file.load(
        pathlib.Path(run_folder, "model.keras")
    )
    _, height, width, channels = model.input_shape
    pixels = [
        read_image(image, image_size=(height, width), channels=channels)
        for image in images
    ]
    answers = []
    for probabilities in predict_probabilities(model, np.stack(pixels)):
        best = np.argsort(-probabilities)[:top_k]
        answers.append([(class_names[i], probabilities[i]) for i in best])
    return answers


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "run_folder", help="folder that recipes/finetune.py wrote"
    )
    parser.add_argument("images", nargs="+", help="image files")
    parser.add_argument(
        "--top_k", type=int, default=3, help="classes to name (default: 3)"
    )
    options = parser.parse_args(arguments)
    try:
        answers = predict(options.run_folder, options.images, options.top_k)
    except ValueError as error:
        fail(str(error))
    for image, answer in zip(options.images, answers, strict=True):
        named = "  ".join(f"{name} {share:.1%}" for name, share in answer)
        print(f"{image}: {named}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
