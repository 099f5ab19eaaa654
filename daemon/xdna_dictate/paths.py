"""Where files of this program lie, after the XDG base directory specification."""

import os
from pathlib import Path
from typing import Final

import platformdirs

APPLICATION: Final = "xdna-dictate"


def models_folder() -> Path:
    """Folder of the installed models."""
    return Path(platformdirs.user_data_dir(APPLICATION)) / "models"


def config_file() -> Path:
    """The settings."""
    return Path(platformdirs.user_config_dir(APPLICATION)) / "config.toml"


def kept_folder() -> Path:
    """Dictations that were not delivered and are long, or outlived the login."""
    return Path(platformdirs.user_state_dir(APPLICATION)) / "kept"


def running_folder() -> Path | None:
    """Short dictations on their way: in memory, and gone with the login. None where the login has no such folder."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / APPLICATION if base else None
