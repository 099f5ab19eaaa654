"""Arena, CTranslate2 and safetensors: what is written comes back, what is damaged is refused by name."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from xdna_asr.errors import ModelDamaged, ModelMissing
from xdna_asr.weights.arena import ALIGNMENT, AnyArray, Arena, write_arena
from xdna_asr.weights.ctranslate2 import read_ctranslate2
from xdna_asr.weights.safetensors import INDEX, read_safetensors

TENSORS: dict[str, AnyArray] = {
    "a": np.arange(7, dtype=np.float32),
    "b": np.arange(6, dtype=np.float16).reshape(2, 3),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(3, np.int8),
}


def test_an_arena_gives_back_its_tensors_aligned_and_read_only(tmp_path: Path) -> None:
    write_arena(tmp_path / "x.arena", TENSORS, {"id": "x"})
    arena = Arena(tmp_path / "x.arena")
    assert arena.meta == {"id": "x"}
    assert list(arena) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert arena[name].dtype == tensor.dtype
        assert np.array_equal(arena[name], tensor)
        assert arena.location(name)[0] % ALIGNMENT == 0
        assert not arena[name].flags.writeable
    assert (tmp_path / "x.arena").stat().st_mode & 0o077 == 0
    with pytest.raises(ModelDamaged, match="nonsense"):
        arena["nonsense"]


@pytest.mark.parametrize("keep", [0, 5, 15, 40, -1])
def test_a_truncated_arena_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "x.arena"
    write_arena(path, TENSORS, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelDamaged, match=r"x\.arena"):
        Arena(path)


def test_other_files_and_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arena"
    with pytest.raises(ModelMissing, match=r"x\.arena"):
        Arena(path)
    write_arena(path, TENSORS, {})
    good = path.read_bytes()
    path.write_bytes(b"GGUF" + good[4:])
    with pytest.raises(ModelDamaged, match="not a model arena"):
        Arena(path)
    path.write_bytes(good[:8] + struct.pack("<I", 99) + good[12:])
    with pytest.raises(ModelDamaged, match="version 99"):
        Arena(path)
    path.write_bytes(good + b"x")
    with pytest.raises(ModelDamaged, match="bytes where"):
        Arena(path)
    path.write_bytes(good.replace(b'"float32"', b'"float99"'))
    with pytest.raises(ModelDamaged, match="malformed header"):
        Arena(path)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="complex128"):
        write_arena(tmp_path / "x.arena", {"c": np.zeros(2, np.complex128)}, {})
    assert list(tmp_path.iterdir()) == []


def _string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def _ctranslate2(tensors: dict[str, AnyArray], version: int = 6, spec: str = "WhisperSpec") -> bytes:
    codes = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "uint16": 5}
    out = struct.pack("<I", version) + _string(spec) + struct.pack("<II", 3, len(tensors))
    for name, tensor in tensors.items():
        out += _string(name) + struct.pack("<B", tensor.ndim) + b"".join(struct.pack("<I", n) for n in tensor.shape)
        if version >= 4:
            out += struct.pack("<BI", codes[tensor.dtype.name], tensor.nbytes)
        else:
            out += struct.pack("<BI", tensor.itemsize, tensor.size)
        out += tensor.tobytes()
    return out + (struct.pack("<I", 1) + _string("alias") + _string("w") if version >= 3 else b"")


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_every_ctranslate2_version_is_read(tmp_path: Path, version: int) -> None:
    tensors: dict[str, AnyArray] = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(4, np.int16)}
    (tmp_path / "model.bin").write_bytes(_ctranslate2(tensors, version))
    read = read_ctranslate2(tmp_path / "model.bin")
    assert np.array_equal(read["w"], tensors["w"])
    assert read["n"] == 4
    assert ("alias" in read) == (version >= 3)


def test_ctranslate2_int8_and_bfloat16_are_widened(tmp_path: Path) -> None:
    tensors: dict[str, AnyArray] = {
        "w": np.array([[10, 20], [30, 40]], np.int8),
        "w_scale": np.array([10, 100], np.float32),
        "h": np.array([0x3F80, 0xC000], np.uint16),
    }
    (tmp_path / "model.bin").write_bytes(_ctranslate2(tensors))
    read = read_ctranslate2(tmp_path / "model.bin")
    assert np.allclose(read["w"], np.array([[1, 2], [0.3, 0.4]]))
    assert read["h"].tolist() == [1.0, -2.0]


GOOD = _ctranslate2({"w": np.arange(6, dtype=np.float32)})


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        GOOD[:3],
        GOOD[:30],
        GOOD[:-20],
        GOOD + b"x",
        struct.pack("<I", 7) + GOOD[4:],
        GOOD.replace(b"WhisperSpec\0", b"WhisperSpecX"),
        GOOD.replace(b"WhisperSpec", b"BloomerSpec"),
        GOOD.replace(struct.pack("<BI", 0, 24), struct.pack("<BI", 0, 20)),
        GOOD.replace(struct.pack("<BI", 0, 24), struct.pack("<BI", 77, 24)),
        GOOD.replace(struct.pack("<BI", 1, 6), struct.pack("<BI", 200, 6)),
        GOOD.replace(struct.pack("<BI", 1, 6), struct.pack("<BI", 1, 0xFFFFFFFF)),
        GOOD[:-4] + b"ww" + GOOD[-2:],
        b"\x08\x00\x00\x00{}      ",
    ],
    ids=range(14),
)
def test_damaged_ctranslate2_files_are_refused_by_name(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "model.bin").write_bytes(damaged)
    with pytest.raises(ModelDamaged, match=r"model\.bin"):
        read_ctranslate2(tmp_path / "model.bin")


def _bfloat16_file(path: Path) -> None:
    header = json.dumps({"h": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<HH", 0x3F80, 0xC000))


def test_safetensors_written_by_the_library_are_read(tmp_path: Path) -> None:
    save_file({name: tensor for name, tensor in TENSORS.items() if name != "scalar"}, tmp_path / "m.safetensors", {"note": "x"})
    read = read_safetensors(tmp_path / "m.safetensors")
    assert all(np.array_equal(read[name], TENSORS[name]) for name in read)
    assert set(read) == {"a", "b", "empty"}
    _bfloat16_file(tmp_path / "h.safetensors")
    assert read_safetensors(tmp_path / "h.safetensors")["h"].tolist() == [1.0, -2.0]


def test_sharded_safetensors_are_joined_and_never_leave_their_folder(tmp_path: Path) -> None:
    save_file({"a": TENSORS["a"]}, tmp_path / "1.safetensors")
    save_file({"b": TENSORS["b"]}, tmp_path / "2.safetensors")
    index = tmp_path / INDEX
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    assert set(read_safetensors(index)) == {"a", "b"}
    index.write_text('{"weight_map": {"a": "../../elsewhere/1.safetensors"}}')
    assert set(read_safetensors(index)) == {"a"}
    for bad in ("[]", "{"):
        index.write_text(bad)
        with pytest.raises(ModelDamaged, match="malformed index"):
            read_safetensors(index)


@pytest.mark.parametrize("keep", [0, 7, 30, -3])
def test_damaged_safetensors_are_refused_by_name(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": TENSORS["a"]}, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelDamaged, match=r"m\.safetensors"):
        read_safetensors(path)


@pytest.mark.parametrize(
    "header",
    [
        b"{}x",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "Q4", "shape": [2], "data_offsets": [0, 8]}}',
    ],
    ids=range(4),
)
def test_malformed_safetensors_headers_are_refused_by_name(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(ModelDamaged, match=r"m\.safetensors"):
        read_safetensors(path)
