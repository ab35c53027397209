"""What `weights=` takes, without a network."""

import re
import sys
import types
from pathlib import Path

import pytest
from file_server import npz
from timm_stub import import_timm

from keras_vit.checkpoints.public import catalog, fetch
from keras_vit.checkpoints.public.fetch import Download, check_beginning

ENTRY = catalog.find("ViT_B16", "imagenet21k")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return tmp_path / "keras"


def test_offline_says_what_to_fetch_and_where_to_put_it(home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError, match="HF_HUB_OFFLINE") as caught:
        fetch.resolve("imagenet21k", "ViT_B16")
    place = home / "models" / "ViT_B16_imagenet21k.npz"
    for part in (ENTRY.url, "412,815,506 bytes", "ac747813", str(place)):
        assert part in str(caught.value)


def test_catalogue_name_is_served_from_the_cache_offline(home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = fetch.cached_path(catalog.find("ViT_S16", "imagenet"))
    place.parent.mkdir(parents=True)
    place.write_bytes(npz(10))
    assert fetch.resolve("imagenet", "ViT_S16") == str(place)
    assert fetch.resolve("ViT_S16/imagenet") == str(place)


def test_paths_come_back_as_they_are(tmp_path):
    assert fetch.resolve("weights/ViT-B_16.npz") == "weights/ViT-B_16.npz"
    assert fetch.resolve(tmp_path / "a") == str(tmp_path / "a")
    assert fetch.resolve("./a") == "./a"
    assert fetch.resolve("two_towers.npz:img") == "two_towers.npz:img"
    assert fetch.resolve("two_towers.npz:params") == "two_towers.npz:params"


def test_existing_path_goes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imagenet21k").touch()
    assert fetch.resolve("imagenet21k", "ViT_B16") == "imagenet21k"


@pytest.mark.parametrize(
    "source", ["http://host/a.npz", "az://vit_models/a.npz", "ftp://host/a.npz"]
)
def test_other_schemes_are_refused(source):
    with pytest.raises(ValueError, match="https://"):
        fetch.resolve(source)


@pytest.mark.parametrize(
    "source", ["https://me:secret@host/a.npz", "https://secret@host/a.npz"]
)
def test_address_with_a_password_is_refused_and_not_printed(source):
    with pytest.raises(ValueError, match="has a password") as caught:
        fetch.resolve(source)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "source", ["https:///a.npz", "https://host:port/a.npz", "https://[a/b.npz"]
)
def test_address_without_a_host_is_refused(source):
    with pytest.raises(ValueError, match="no address"):
        fetch.resolve(source)


def test_unknown_name_lists_what_there_is():
    with pytest.raises(ValueError, match=r"R26_B32.*imagenet21k.*Nor is there"):
        fetch.resolve("imagenet", "ViT_R26_B32")


def test_addresses_of_one_basename_have_two_names_in_the_cache(monkeypatch):
    names = []
    monkeypatch.setattr(
        Download, "fetch", lambda self: names.append(self.file_name)
    )
    fetch.resolve("https://host/imagenet21k/ViT-B_16.npz")
    fetch.resolve("https://host/sam/ViT-B_16.npz?token=../../x")
    assert names[0] != names[1]
    assert all(re.fullmatch(r"[0-9a-f]{16}_ViT-B_16\.npz", n) for n in names)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """huggingface_hub as far as we use it."""
    calls = []

    def snapshot_download(repo_id, **options):
        if options["local_files_only"]:
            raise FileNotFoundError("not in the cache")
        if len(options["allow_patterns"]) > 1:  # after the small files
            calls.append((repo_id, options["revision"]))
        return str(tmp_path)

    module = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return calls


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("hf://user/name", ("user/name", None)),
        ("hf://user/name@v1.0", ("user/name", "v1.0")),
        ("https://huggingface.co/user/name", ("user/name", None)),
        ("https://huggingface.co/user/name/", ("user/name", None)),
        ("https://huggingface.co/user/name/tree/dev", ("user/name", "dev")),
        ("timm/some_vit.some_tag", ("timm/some_vit.some_tag", None)),
        ("timm/some_vit.some_tag@abc", ("timm/some_vit.some_tag", "abc")),
        (
            "google/vit-base-patch16-224",
            ("google/vit-base-patch16-224", None),
        ),
    ],
)
def test_repositories_are_asked_for_by_name(tmp_path, hub, source, call):
    (tmp_path / "model.safetensors").touch()
    assert fetch.resolve(source) == str(tmp_path)
    assert hub == [call]


@pytest.mark.parametrize(
    ("files", "texts", "both"),
    [
        ((), False, True),  # The image tower is nowhere else.
        (("model.safetensors",), False, False),
        (("model.safetensors",), True, True),
    ],
)
def test_the_file_of_both_halves_is_fetched_where_it_is_needed(
    tmp_path, monkeypatch, files, texts, both
):
    fetched = set()

    def snapshot_download(name, *, allow_patterns, **options):
        fetched.update(allow_patterns)
        if "open_clip_model.safetensors" in allow_patterns:
            (tmp_path / "open_clip_model.safetensors").touch()
        return str(tmp_path)

    module = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    for name in (*files, "open_clip_config.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "config.json").write_text('{"architecture": "vit_tiny"}')
    assert fetch.resolve("timm/a.b", texts=texts) == str(tmp_path)
    assert ("open_clip_model.safetensors" in fetched) == both
    # What transformers wrote has both halves in its own file.
    fetched.clear()
    (tmp_path / "config.json").write_text('{"text_config": {}}')
    fetch.resolve("timm/a.b", texts=True)
    assert "open_clip_model.safetensors" not in fetched


def test_names_of_timm_are_the_repositories_that_timm_takes(hub, tmp_path):
    timm = import_timm()
    (tmp_path / "model.safetensors").touch()
    for tag in catalog.library_entries():
        config = timm.get_pretrained_cfg(tag.removeprefix("timm/"))
        entry = catalog.find(None, tag)
        if config.hf_hub_id:
            assert entry.url == f"https://huggingface.co/{config.hf_hub_id}"
        else:
            with pytest.raises(ValueError, match="as a pickle alone.*convert"):
                fetch.resolve(tag)
    for name in {x.partition(".")[0] for x in catalog.library_entries()}:
        bare = name.removeprefix("timm/")
        entry = catalog.find(None, bare)
        usual = timm.get_pretrained_cfg(bare)
        assert entry.url.endswith(usual.hf_hub_id or usual.url), bare
    fetch.resolve("vit_base_patch16_siglip_224")
    assert hub == [("timm/vit_base_patch16_siglip_224.v2_webli", None)]


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("vit_base_patch16_244", "vit_base_patch16_224"),
        ("timm/vit_base_patch16_siglip_224.webl", "siglip_224.webli"),
        ("ViT_B16/imagnet", "imagenet"),
    ],
)
def test_names_that_are_nearly_right_are_suggested(source, meant):
    with pytest.raises(ValueError, match=f"Did you mean.*{meant}"):
        catalog.find(None, source)


def test_a_download_says_what_it_fetches_and_how_large_it_is(
    hub, tmp_path, capsys
):
    (tmp_path / "model.safetensors").touch()
    fetch.resolve("timm/beit_base_patch16_224.in22k_ft_in22k")
    # 86.5 million numbers and a head of 21,841 classes, in float32.
    assert "beit_base_patch16_224.in22k_ft_in22k, about 3" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("google/siglip-base-patch16-224", True),
        ("timm/x.y@abc", True),
        ("ViT_B16/imagenet", False),
        ("ViT_B61/imagenet", False),
        ("runs/flowers", False),
        ("weights/model.npz", False),
        ("vit", False),
    ],
)
def test_names_with_an_owner_are_repositories(
    tmp_path, monkeypatch, text, is_one
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert fetch.is_address(text) == is_one


def test_repository_of_pickles_names_the_original(tmp_path, hub):
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ValueError, match="ViT_L32/imagenet21k_imagenet2012"):
        fetch.resolve("google/vit-large-patch32-384")


def test_repository_offline_says_what_to_fetch(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError, match=r"config.json.*user/name/tree/main"):
        fetch.resolve("hf://user/name")


def test_repository_without_huggingface_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"keras-vision-transformer\[hub\]"):
        fetch.resolve("hf://user/name")


def test_address_without_a_file_name_gets_one(monkeypatch):
    monkeypatch.setattr(Download, "fetch", lambda self: self.file_name)
    assert fetch.resolve("https://host/").endswith("_weights")


@pytest.mark.parametrize("suffix", ["npz", "keras", "h5", "safetensors", ""])
def test_beginnings_of_files(suffix):
    # A header of 10 bytes: 10 is the line feed.
    safetensors = (10).to_bytes(8, "little") + b'{"a":{}}  '
    hdf5 = bytes.fromhex("89 48 44 46 0d 0a 1a 0a 00 00")
    right = {
        "npz": [npz(10)],
        "keras": [npz(10)],
        "h5": [hdf5],
        "safetensors": [safetensors],
        "": [npz(10), hdf5, safetensors],
    }[suffix]
    for beginning in (npz(10), hdf5, safetensors, b"<html>", b""):
        if beginning in right:
            check_beginning(beginning, f"a.{suffix}")
        else:
            with pytest.raises(ValueError, match="begins with"):
                check_beginning(beginning, f"a.{suffix}")


def test_place_of_a_repository_is_not_ours():
    entry = catalog.find(None, "google/vit-base-patch16-224")
    with pytest.raises(ValueError, match="huggingface_hub knows"):
        fetch.cached_path(entry)
