"""Where files of this program lie, after the XDG base directory specification."""

from pathlib import Path
from typing import Final

import platformdirs

APPLICATION: Final = "xdna-dictate"


def models_folder() -> Path:
    """Folder of the installed models."""
    return Path(platformdirs.user_data_dir(APPLICATION)) / "models"
