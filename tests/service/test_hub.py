"""Downloads through the real client library from a hub on loopback, each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from loopback_hub import serving
from random_whisper import KINDS, checkpoint, tokenizer

REPOSITORY = "openai/whisper-tiny"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    save_file(checkpoint(*KINDS["multilingual"], d=96), folder / "model.safetensors")
    (folder / "config.json").write_text('{"decoder_attention_heads": 2, "suppress_tokens": [1], "begin_suppress_tokens": [220]}')
    (folder / "generation_config.json").write_text('{"alignment_heads": [[1, 0]]}')
    (folder / "tokenizer.json").write_text(tokenizer(KINDS["multilingual"][0]))
    return folder


def models(tmp_path: Path, address: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path / "hf"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "HF_HUB_DISABLE_XET": "1",
    }
    command = [sys.executable, "-m", "xdna_dictate.cli", "models", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)


def test_a_model_is_downloaded_listed_verified_and_removed(repository: Path, tmp_path: Path) -> None:
    with serving(repository, REPOSITORY) as hub:
        done = models(tmp_path, hub.address, "download", "whisper-tiny", "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
        assert "whisper-tiny is ready" in done.stdout
    row = next(line for line in models(tmp_path, "", "list").stdout.splitlines() if line.startswith("whisper-tiny "))
    assert row.split()[-1] == "yes"
    assert models(tmp_path, "", "verify", "whisper-tiny").stdout.startswith("whisper-tiny is whole")
    assert models(tmp_path, "", "remove", "whisper-tiny").returncode == 0
    gone = models(tmp_path, "", "verify", "whisper-tiny")
    assert gone.returncode == 3
    assert "models download whisper-tiny" in gone.stderr


@pytest.mark.long
def test_a_cut_download_leaves_no_model_and_is_resumed_where_it_was_cut(repository: Path, tmp_path: Path) -> None:
    kept = 10 << 20
    with serving(repository, REPOSITORY) as hub:
        hub.cuts = [16 << 20] + [0] * 6
        cut = models(tmp_path, hub.address, "download", "whisper-tiny", "--quiet")
        assert (cut.returncode, len(cut.stderr.splitlines())) == (3, 1), cut.stderr
        assert models(tmp_path, "", "verify", "whisper-tiny").returncode == 3
        hub.cuts, hub.ranges = [], []
        assert models(tmp_path, hub.address, "download", "whisper-tiny", "--quiet").returncode == 0
        assert hub.ranges[0] == f"bytes={kept}-"
    assert models(tmp_path, "", "verify", "whisper-tiny").returncode == 0


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_wrong_checksum_is_refused_and_only_the_partial_file_deleted(name: str, repository: Path, tmp_path: Path) -> None:
    with serving(repository, REPOSITORY) as hub:
        hub.garble = name
        done = models(tmp_path, hub.address, "download", "whisper-tiny", "--quiet")
        assert done.returncode == 3
        assert re.search(rf"{re.escape(name)}: its (sha256|checksum) is wrong; the partial file was deleted", done.stderr)
        assert len(done.stderr.splitlines()) == 1
        left = tmp_path / "data" / "xdna-dictate" / "models" / ".download" / "whisper-tiny"
        assert not (left / name).exists()
        hub.garble = ""
        assert models(tmp_path, hub.address, "download", "whisper-tiny", "--quiet").returncode == 0


def test_an_unknown_repository_and_a_dead_hub_are_one_line(repository: Path, tmp_path: Path) -> None:
    with serving(repository, "somebody/else") as hub:
        unknown = models(tmp_path, hub.address, "download", "whisper-tiny", "--quiet")
    dead = models(tmp_path, "http://127.0.0.1:9", "download", "whisper-tiny", "--quiet")
    for done in (unknown, dead):
        assert done.returncode == 3
        assert len(done.stderr.splitlines()) == 1, done.stderr
