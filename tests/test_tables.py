"""Tables as text."""

from keras_vit.io.tables import markdown_table

ROWS = [("a|b", 3), (None, 10)]


def test_numbers_are_aligned_to_the_right():
    assert markdown_table(["part", "n"], ROWS, ["n"]) == [
        "| part | n |",
        "|---|--:|",
        "| a\\|b | 3 |",
        "|  | 10 |",
    ]


def test_columns_of_a_padded_table_have_one_width():
    assert markdown_table(["part", "size"], ROWS, ["size"], padded=True) == [
        "| part | size |",
        "| ---- | ---: |",
        "| a\\|b |    3 |",
        "|      |   10 |",
    ]
