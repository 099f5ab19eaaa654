"""Our lowering against five designs that the real toolchain compiled and real hardware ran."""

from typing import Any

import numpy as np
import pytest
from referee import BUILD, NAMES, facts
from simulation import Simulation, referee_kernels

from xdna_designs.bf16 import narrow, widen
from xdna_designs.instructions import decode, encode, stream
from xdna_designs.lowering import Configuration, lower
from xdna_designs.routing import trace
from xdna_designs.words import BufferDescriptor, decode_bd

Dims = list[tuple[int, int]]


def _compact(dims: Any, length: int) -> Dims:
    """Dimensions innermost first without those of size 1, neighbours merged; a plain run is empty."""
    kept: Dims = []
    for size, stride in dims:
        if size == 1:
            continue
        if kept and stride == kept[-1][0] * kept[-1][1]:
            kept[-1] = (kept[-1][0] * size, kept[-1][1])
        else:
            kept.append((size, stride))
    return [] if kept == [(length, 1)] else kept


def _ours(configuration: Configuration) -> dict[tuple[str, str, str], Any]:
    """Rings by fifo, end and array place, in terms of pools and slots."""
    rings: dict[tuple[str, str, str], Any] = {}
    for chain in configuration.chains:
        tile = chain.port.tile
        kind = configuration.device.kind(tile)
        settings = configuration.tiles[tile]
        entries = []
        for bd in chain.bds:
            found = decode_bd(kind, settings.bds[bd])
            assert found.acquire is not None
            assert found.release is not None
            pool = next(
                pool for pool in chain.pools if found.base in pool.addresses and found.acquire[0] in (pool.free, pool.full)
            )
            sides = ("free", "full") if found.acquire[0] == pool.free else ("full", "free")
            entries.append(
                (
                    _compact(found.dims, found.length),
                    found.length,
                    pool.addresses.index(found.base),
                    sides,
                    found.acquire[1],
                    found.release[1],
                )
            )
        following = [decode_bd(kind, settings.bds[bd]).next for bd in chain.bds]
        assert following == [*chain.bds[1:], chain.bds[0]]
        pushes = [
            push
            for direction, channel, push in settings.queues
            if (direction, channel) == (chain.port.direction, chain.port.channel)
        ]
        assert [(push.bd, push.repeat, push.token) for push in pushes] == [(chain.bds[0], 1, False)]
        rings[chain.end.fifo.name, chain.end.role, str(tile)] = entries
    return rings


def _theirs(told: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    rings = {}
    for chain in told["chains"]:
        start = next(i for i, entry in enumerate(chain["chain"]) if entry["slot"] == 0)
        assert start == 0
        assert (chain["repeat"], chain["token"], chain["loop_to"]) == (1, 0, 0)
        entries = [
            (_compact(e["dims"], e["len"]), e["len"], e["slot"], (e["acq"][0], e["rel"][0]), e["acq"][1], e["rel"][1])
            for e in chain["chain"]
        ]
        column, row = chain["tile"]
        rings[chain["fifo"], chain["end"], f"({column}, {row})"] = entries
    return rings


@pytest.mark.parametrize("name", NAMES)
def test_rings_lengths_walks_and_locks_are_the_referees(name: str) -> None:
    assert _ours(lower(BUILD[name]())) == _theirs(facts(name))


@pytest.mark.parametrize("name", NAMES)
def test_pools_start_with_the_referees_values(name: str) -> None:
    configuration = lower(BUILD[name]())
    ours = sorted(
        (
            str(pool.tile),
            pool.nbytes // 4,
            pool.depth,
            configuration.tiles[pool.tile].locks[pool.free],
            configuration.tiles[pool.tile].locks[pool.full],
        )
        for pool in {id(pool): pool for pools in configuration.pools.values() for pool in pools}.values()
    )
    theirs = [
        (f"({pool['tile'][0]}, {pool['tile'][1]})", pool["words"], len(pool["addr"] or [0, 0]), *pool["init"])
        for pool in facts(name)["pools"]
    ]
    assert [entry[1:] for entry in ours] == [entry[1:] for entry in sorted(theirs)]


@pytest.mark.parametrize("name", NAMES)
def test_streams_reach_the_referees_ends(name: str) -> None:
    configuration = lower(BUILD[name]())
    switches = {tile: settings.switch for tile, settings in configuration.tiles.items()}
    ours = {
        (flow.name, str(flow.source), tuple(map(str, trace(switches, flow.source, configuration.device))))
        for flow in configuration.flows
    }
    theirs = set()
    for flow in facts(name)["flows"]:
        ends = sorted(flow["dst"])
        theirs.add((flow["fifo"], _port(flow["src"]), tuple(map(_port, ends))))
    assert {(name, source[:4], tuple(end[:4] for end in ends)) for name, source, ends in ours} == {
        (name, source[:4], tuple(end[:4] for end in ends)) for name, source, ends in theirs
    }
    assert {(name, tuple(end.partition("of ")[2] for end in ends)) for name, _, ends in ours} == {
        (name, tuple(end.partition("of ")[2] for end in ends)) for name, _, ends in theirs
    }


def _port(place: list[Any]) -> str:
    column, row, channel = place
    return f"{channel} of tile ({column}, {row})"


@pytest.mark.parametrize("name", NAMES)
def test_instruction_words_are_the_referees(name: str) -> None:
    words = [int(word, 16) for line in facts(name)["insts"]["words"] for word in line.split()]
    assert stream(lower(BUILD[name]())).tolist() == words


@pytest.mark.parametrize("name", NAMES)
def test_streams_can_be_read_and_written_again(name: str) -> None:
    configuration = lower(BUILD[name]())
    words = stream(configuration)
    assert encode(list(decode(words)), configuration.device).tolist() == words.tolist()


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_the_referees_compute_the_right_numbers_three_times(name: str, seed: int | None) -> None:
    program = BUILD[name]()
    simulation = Simulation(program, referee_kernels(), seed=seed)
    rng = np.random.default_rng(5)
    for _ in range(3):
        arrays: list[Any] = []
        for kind in program.runtime.types:
            if kind.dtype == "bf16":
                arrays.append(narrow(rng.standard_normal(kind.shape)))
            else:
                arrays.append(rng.integers(-99, 99, kind.shape).astype({"i16": np.int16, "i32": np.int32}[kind.dtype]))
        simulation.run(arrays)
        *given, got = arrays
        if name.startswith("gem"):
            assert np.array_equal(got, given[0].astype(np.int32) @ given[1].astype(np.int32))
        else:
            total = given[0]
            for other in given[1:]:
                total = narrow(widen(total) + widen(other))
            assert np.array_equal(got, total)


@pytest.mark.parametrize("kind", ["shim", "mem", "core"])
def test_descriptors_survive_their_words(kind: Any) -> None:
    walk = ((4, 1), (8, 4), (5, 64))
    whole = BufferDescriptor(160, 4096, walk, (3, 7), (2, -1), (3, 1), 5)
    assert decode_bd(kind, whole.encode(kind)) == whole
    plain = BufferDescriptor(100, 64)
    assert decode_bd(kind, plain.encode(kind)).dims == ((100, 1),)
    with pytest.raises(OverflowError, match="step0"):
        BufferDescriptor(100, 0, ((10, 1 << 21), (10, 1))).encode(kind)
