"""Desktops for the service's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop import Desktop, desktop
from xdna_asr.store import ModelStore


@pytest.fixture
def fresh(tmp_path: Path, store: ModelStore) -> Iterator[Desktop]:
    """A desktop on which nothing runs yet."""
    assert store
    with desktop(tmp_path / "desktop") as made:
        yield made


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, store: ModelStore) -> Iterator[Desktop]:
    """A desktop with bus, sound server and daemon, shared by the tests of a module."""
    assert store
    with desktop(tmp_path_factory.mktemp("live") / "desktop") as made:
        made.start_bus()
        made.start_sound()
        made.start_daemon()
        yield made
