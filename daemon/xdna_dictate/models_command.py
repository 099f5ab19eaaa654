"""`xdna-dictate models`: what is known, what is here."""

import argparse
import sys
from pathlib import Path

from xdna_asr.errors import ModelMissing
from xdna_asr.registry import DEFAULT_MODEL, MODELS, find_model
from xdna_asr.store import InstalledModel, ModelStore, writing
from xdna_asr.weights.importing import import_whisper
from xdna_dictate.errors import EXIT_OK, UsageError
from xdna_dictate.paths import models_folder


def run_models(arguments: argparse.Namespace) -> int:
    """Carry out one action; returns the exit code."""
    store = ModelStore(models_folder())
    if arguments.action == "list":
        _list(store)
    elif arguments.action == "download":
        _say(store.install(find_model(arguments.model), quiet=arguments.quiet), "is ready")
    elif arguments.action == "verify":
        _say(store.verify(arguments.model), "is whole")
    elif arguments.action == "remove":
        store.remove(arguments.model)
        print(f"{arguments.model} was removed")
    else:
        _import(store, Path(arguments.folder), arguments.model)
    return EXIT_OK


def _import(store: ModelStore, folder: Path, model_id: str) -> None:
    if model_id in MODELS:
        raise UsageError(f"{model_id}: choose another name, this is a known model's")
    if not folder.is_dir():
        raise ModelMissing(f"{folder}: no such folder")
    place = store.place(model_id)
    with writing(place):
        import_whisper(folder, place, model_id, "as its maker says")
    _say(store.open(model_id), "is ready")


def _say(model: InstalledModel, what: str) -> None:
    print(f"{model.id} {what} in {model.folder}")


def _list(store: ModelStore) -> None:
    here = store.installed()
    rows = [("MODEL", "FAMILY", "DOWNLOAD", "LANGUAGES", "LICENCE", "RUNS ON", "HERE")]
    for model in MODELS.values():
        mark = "default" if model.id == DEFAULT_MODEL else ""
        state = "yes" if model.id in here else "no"
        rows.append(
            (model.id, model.family, f"{model.megabytes} MB", model.languages, model.licence, "cpu", f"{state} {mark}".strip())
        )
    rows += [(model_id, "Whisper", "imported", "", "", "cpu", "yes") for model_id in here if model_id not in MODELS]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip(), file=sys.stdout)
