"""Turns a downloaded checkpoint folder into an installed model: an arena, a tokenizer and a manifest."""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from xdna_asr.errors import ModelDamaged, ModelMissing
from xdna_asr.models.whisper import WhisperDims
from xdna_asr.text.vocabulary import vocabulary_tables
from xdna_asr.weights.arena import write_arena
from xdna_asr.weights.ctranslate2 import read_ctranslate2
from xdna_asr.weights.safetensors import INDEX, read_safetensors
from xdna_asr.weights.whisper import from_ctranslate2, from_huggingface

ARENA: Final = "weights.arena"
TOKENIZER: Final = "tokenizer.json"
MANIFEST: Final = "model.json"
_CHUNK: Final = 1 << 20


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def import_whisper(source: Path, destination: Path, model_id: str, licence: str) -> None:
    """Install the checkpoint in `source` (CTranslate2 or transformers files) as the folder `destination`.

    Built beside `destination` and renamed, so a cut import leaves the old model, or none. Raises ModelMissing or
    ModelDamaged with the file's name.
    """
    weights = next((source / name for name in ("model.bin", "model.safetensors", INDEX) if (source / name).exists()), None)
    if weights is None:
        raise ModelMissing(f"{source}: no model.bin or model.safetensors in it")
    ctranslate2 = weights.name == "model.bin"
    tensors = from_ctranslate2(read_ctranslate2(weights)) if ctranslate2 else from_huggingface(read_safetensors(weights))
    meta = _settings(source) | {"id": model_id, "source": weights.name, "fingerprint": sha256(weights)}
    tables, known = vocabulary_tables(source / TOKENIZER, WhisperDims.of(tensors).vocabulary)
    destination.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=f".{destination.name}.") as scratch:
        built = Path(scratch) / "model"
        write_arena(built / ARENA, tensors | tables, meta | known)
        shutil.copyfile(source / TOKENIZER, built / TOKENIZER)
        files = {name: {"size": (built / name).stat().st_size, "sha256": sha256(built / name)} for name in (ARENA, TOKENIZER)}
        manifest = {"id": model_id, "licence": licence, "files": files}
        (built / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
        shutil.rmtree(destination, ignore_errors=True)
        os.replace(built, destination)


def _settings(source: Path) -> dict[str, Any]:
    """Suppress lists, alignment heads and head count from the JSON files beside a checkpoint."""
    merged: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json"):
        path = source / name
        if path.is_file():
            try:
                merged |= dict(json.loads(path.read_text("utf-8")))
            except (ValueError, TypeError) as error:
                raise ModelDamaged(f"{path}: not a JSON object ({error})") from error
    if not merged:
        raise ModelMissing(f"{source / 'config.json'}: missing")

    def listed(*names: str) -> list[Any]:
        return next((merged[name] for name in names if merged.get(name)), [])

    return {
        "suppress": [token for token in listed("suppress_ids", "suppress_tokens") if token >= 0],
        "suppress_first": listed("suppress_ids_begin", "begin_suppress_tokens"),
        "alignment_heads": listed("alignment_heads"),
        "heads": merged.get("decoder_attention_heads"),
    }
