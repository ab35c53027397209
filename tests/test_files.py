"""A file that is written is there whole or not at all."""

import webbrowser

import pytest

from keras_vit.io.atomic_files import open_page, replacing, write_csv


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "result.json"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_two_writers_of_a_file_do_not_mix(tmp_path):
    path = tmp_path / "result.json"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_values_that_a_row_lacks_are_empty_fields(tmp_path):
    path = tmp_path / "table.csv"
    write_csv(path, [{"a": 1, "b": None}, {"a": 2, "c": 'x, "y"'}])
    assert path.read_text() == 'a,b,c\n1,,\n2,,"x, ""y"""\n'


def test_a_page_is_opened_where_there_is_a_display(tmp_path, monkeypatch):
    page, opened = tmp_path / "report.html", []
    page.write_text("<p>report</p>")
    monkeypatch.setattr(webbrowser, "open", lambda x: not opened.append(x))
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not open_page(page)
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_page(page)
    assert not open_page(tmp_path / "gone.html")
    assert opened == [page.as_uri()]
