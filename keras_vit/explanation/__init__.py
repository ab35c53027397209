"""Pictures and a page of what a model attends to in images."""

from keras_vit.explanation.attention_page import check_folder, explain

__all__ = ["check_folder", "explain"]
