"""Whisper's decoder on one array configuration: a dispatch runs steps, each token feeds the next. README.md has the picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xdna_designs.dataflow import (
    Buffer,
    DesignError,
    Endpoint,
    HostBuffer,
    Kernel,
    ObjectFifo,
    Program,
    Runtime,
    TaskGroup,
    TensorAccessPattern,
    Tile,
    Worker,
    linear,
    range_,
    tensor,
)
from xdna_designs.device import FIRST_CORE_ROW, MEM_ROW, Device
from xdna_designs.kernels import kernel_object
from xdna_designs.parameters import NUMBERS, Parameters

STACK: Final = 4096
HEAD: Final = 64
TAIL: Final = 32
"""bfloat16 places of the float32[16] at the end of every tape object."""
RECORD: Final = 16
"""int32 that one step tells the host: token, order, maximum and sum of the scores."""
_OPERATORS, _LAYERS, _STEP, _POSITION, _WORKER, _FORCED, _STEPS = range(7)
_EMBED, _PROJECT, _SCORES, _VALUES, _VOCABULARY = range(5)
_NORMED, _AS_IS = range(2)
_QKV, _RESIDUAL, _HIDDEN = range(3)
_LAYER_RECORDS: Final = 10


@dataclass(frozen=True)
class Decoder:
    """The overlay for one width, vocabulary and audio length. Sizes in rows and positions.

    `rows` of the matrices make one tape object. `audio`: positions that cross attention sees, padded.
    """

    device: Device
    width: int = 384
    layers: int = 4
    vocabulary: int = 51968
    audio: int = 1536
    context: int = 448
    rows: int = 8

    def __post_init__(self) -> None:
        workers = self.workers
        for what, value, grain in (
            ("width", self.width, max(HEAD, 16 * workers)),
            ("vocabulary", self.vocabulary, workers * self.rows),
            ("audio", self.audio, workers * self.rows),
            ("context", self.context, workers * self.rows),
        ):
            if value % grain:
                raise DesignError(f"decoder: a {what} of {value} on {self.device.name}, it must be a multiple of {grain}")

    @property
    def workers(self) -> int:
        """One a column."""
        return self.device.columns

    @property
    def slice(self) -> int:
        """Values of a vector that one worker makes."""
        return self.width // self.workers

    @property
    def object(self) -> int:
        """bfloat16 places of a tape object."""
        return self.rows * self.width + TAIL

    @property
    def sections(self) -> tuple[int, int, int]:
        """Objects of a worker's tape for one layer: before self attention, between the two attentions, after them."""
        project = self.slice // self.rows
        return 3 * project, 2 * project, project + 4 * project + 4 * project

    @property
    def vocabulary_objects(self) -> int:
        """Objects of a worker's vocabulary, with the last LayerNorm's."""
        return self.vocabulary // (self.workers * self.rows) + 1

    @property
    def tape(self) -> int:
        """Objects of a worker's whole tape."""
        return self.layers * sum(self.sections) + self.vocabulary_objects

    @property
    def self_blocks(self) -> int:
        """Objects of a worker's keys, and of its values, in one layer's self cache."""
        return self.context // (self.workers * self.rows)

    @property
    def cross_blocks(self) -> int:
        """The same of the cross cache."""
        return self.audio // (self.workers * self.rows)

    @property
    def keys(self) -> int:
        """Scores that a worker keeps for each head: its share of the longer cache and the newest key, in whole vectors."""
        return -(-max(self.cross_blocks * self.rows, self.self_blocks * self.rows + 1) // 16) * 16

    @property
    def positions_offset(self) -> int:
        """Where the table of positions begins in the arena, in bfloat16 places."""
        return self.workers * self.tape * self.object

    @property
    def arena(self) -> int:
        """bfloat16 places of tapes and positions; a read of a position takes a whole object."""
        return self.positions_offset + self.context * self.width + self.object

    def records(self) -> NDArray[np.int32]:
        """The operators of a layer and the vocabulary, as decoder_state.hpp reads them."""
        project, w = self.slice // self.rows, self.workers
        rows = [
            # kind, objects, rounds, source, target, k
            (_PROJECT, 3 * project, 3, _NORMED, _QKV, self.width),
            (_SCORES, -1, 0, _AS_IS, 0, 0),
            (_VALUES, -1, 1 + w, _AS_IS, 0, 0),
            (_PROJECT, project, 1, _AS_IS, _RESIDUAL, self.width),
            (_PROJECT, project, 1, _NORMED, _QKV, self.width),
            (_SCORES, self.cross_blocks, 0, _AS_IS, 0, 0),
            (_VALUES, self.cross_blocks, 1 + w, _AS_IS, 0, 0),
            (_PROJECT, project, 1, _AS_IS, _RESIDUAL, self.width),
            (_PROJECT, 4 * project, 4, _NORMED, _HIDDEN, self.width),
            (_PROJECT, 4 * project, 1, _AS_IS, _RESIDUAL, 4 * self.width),
            (_VOCABULARY, self.vocabulary_objects, 1 + w, _AS_IS, 0, 0),
        ]
        return np.array([(*row, 0, 0) for row in rows], np.int32)

    def token_offset(self, token: int) -> int:
        """Where a token's row lies in the arena, in bfloat16 places."""
        share = self.vocabulary // self.workers
        worker, row = divmod(token, share)
        place = (worker + 1) * self.tape - self.vocabulary_objects + 1 + row // self.rows
        return place * self.object + row % self.rows * self.width

    def program(self, position: int, forced: Sequence[int], steps: int) -> Program:
        """`steps` steps from `position` on; the first take the tokens `forced`, the others what the step before chose.

        Host buffers: arena bf16, self cache bf16, cross cache bf16, told i32[steps, RECORD]. Steps before the last forced one
        have no vocabulary and tell -1.
        """
        if not 1 <= len(forced) <= steps or position + steps > self.context:
            given = f"{steps} steps from {position} with {len(forced)} given tokens"
            raise DesignError(f"decoder: {given}, there are {self.context} positions")
        overlay = _Overlay(self)
        caches = [self.workers * self.layers * 2 * blocks * self.object for blocks in (self.self_blocks, self.cross_blocks)]
        types = [tensor("bf16", self.arena), *(tensor("bf16", size) for size in caches), tensor("i32", steps, RECORD)]
        sequence = _Sequence(overlay, position, list(forced), steps)
        return Program(self.device, Runtime(sequence.run, types, partial=[1]), overlay.workers, name="decoder")


class _Overlay:
    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        d, w, piece = decoder.width, decoder.workers, tensor("bf16", decoder.object)
        vector, part, pair = tensor("bf16", d), tensor("bf16", decoder.slice), tensor("bf16", 2 * decoder.slice)
        self.tape = [ObjectFifo(piece, name=f"tape{c}") for c in range(w)]
        near = [self.tape[c].cons(depth=4).forward(tile=Tile(c, MEM_ROW), name=f"tape{c}_near", depth=2) for c in range(w)]
        self.vector = ObjectFifo(vector, name="vector", depth=1)
        middle = Tile(w // 2 - 1, MEM_ROW)
        pairs = self.vector.prod().join(
            [2 * decoder.slice * index for index in range(w // 2)],
            tile=middle,
            obj_types=[pair] * (w // 2),
            names=[f"pair{index}" for index in range(w // 2)],
            depths=[1] * (w // 2),
        )
        slices = [ObjectFifo(part, name=f"slice{index}", depth=1) for index in range(w // 2)]
        self.cache = [ObjectFifo(vector, name=f"cache{c}") for c in range(w)]
        self.told = ObjectFifo(tensor("i32", RECORD), name="told")
        self.kernels = _kernels(decoder)
        self.parameters = [Parameters(f"w{c}") for c in range(w)]
        self.workers: list[Worker] = []
        for c in range(w):
            self.tape[c].prod(tile=Tile(c, 0))
            self.cache[c].cons(tile=Tile(c, 0))
            odd = c % 2 == 1
            out = pairs[c // 2].prod() if odd else slices[c // 2].prod()
            extra = [slices[c // 2].cons()] if odd else [self.told.prod()] if c == 0 else []
            ends = [near[c].cons(), self.vector.cons(), out, self.cache[c].prod(), *extra]
            memory = [self.parameters[c].numbers, self.parameters[c].barrier, *_memory(decoder, c)]
            core = _odd if odd else _first if c == 0 else _even
            name = f"decoder{c}"
            self.workers.append(
                Worker(core, [*ends, *memory, *self.kernels], tile=Tile(c, FIRST_CORE_ROW), stack_size=STACK, name=name)
            )
        self.told.cons(tile=Tile(0, 0))


def _memory(decoder: Decoder, c: int) -> list[Buffer]:
    d, keys = decoder.width, decoder.keys
    shapes = {
        "registers": ("i32", 32), "records": ("i32", (_LAYER_RECORDS + 1) * 8), "x": ("f32", d), "h": ("bf16", 4 * d),
        "y": ("f32", 4 * decoder.slice), "qkv": ("bf16", 3 * d), "scores": ("f32", d // HEAD * keys), "o": ("f32", d + 64),
        "best": ("bf16", 32 + d),
    }  # fmt: skip
    return [
        Buffer(tensor(dtype, count), initial_value=decoder.records() if name == "records" else None, name=f"{name}{c}")
        for name, (dtype, count) in shapes.items()
    ]


def _kernels(decoder: Decoder) -> list[Kernel]:
    """In the order in which the core functions take them."""
    defines = {"DIM_D": decoder.width, "DIM_ROWS": decoder.rows, "DIM_WORKERS": decoder.workers, "DIM_KEYS": decoder.keys}
    obj = {name: kernel_object(f"decoder_{name}", **defines) for name in ("begin", "work", "exchange")}
    d = decoder.width
    registers, records = tensor("i32", 32), tensor("i32", (_LAYER_RECORDS + 1) * 8)
    x, h, y, qkv = tensor("f32", d), tensor("bf16", 4 * d), tensor("f32", 4 * decoder.slice), tensor("bf16", 3 * d)
    scores, o, best = tensor("f32", d // HEAD * decoder.keys), tensor("f32", d + 64), tensor("bf16", 32 + d)
    piece, vector, part, pair = (
        tensor("bf16", decoder.object),
        tensor("bf16", d),
        tensor("bf16", decoder.slice),
        tensor("bf16", 2 * decoder.slice),
    )
    return [
        Kernel("decoder_start", obj["begin"], [NUMBERS, registers]),
        Kernel("decoder_begin", obj["begin"], [NUMBERS, registers, records, x, h, scores, o, best]),
        Kernel("decoder_work", obj["work"], [piece, registers, x, h, y, qkv, scores, o, best]),
        Kernel("decoder_end", obj["work"], [registers, qkv, scores, o]),
        Kernel("decoder_give", obj["exchange"], [part, registers, y, o, best]),
        Kernel("decoder_give_pair", obj["exchange"], [part, pair, registers, y, o, best]),
        Kernel("decoder_take", obj["exchange"], [vector, registers, x, h, qkv, o, best]),
        Kernel("decoder_append", obj["exchange"], [vector, registers, qkv]),
        Kernel("decoder_tell", obj["exchange"], [tensor("i32", RECORD), best]),
    ]


@dataclass(frozen=True)
class _Core:
    """What every worker's function works on."""

    tape: Endpoint
    vector: Endpoint
    out: Endpoint
    cache: Endpoint
    memory: Sequence[Any]
    kernels: Sequence[Kernel]

    def run(self, neighbour: Endpoint | None, told: Endpoint | None) -> None:
        params, barrier, registers, records, x, h, y, qkv, scores, o, best = self.memory
        start, begin, work, end, *_ = self.kernels
        barrier.wait_once()
        start(params, registers)
        for _ in range_(params[_STEPS]):
            for _ in range_(params[_OPERATORS]):
                begin(params, registers, records, x, h, scores, o, best)
                for _ in range_(registers[0]):
                    work(self.tape.acquire(1), registers, x, h, y, qkv, scores, o, best)
                    self.tape.release(1)
                end(registers, qkv, scores, o)
                self._exchange(neighbour)
                self._leave(told)

    def _exchange(self, neighbour: Endpoint | None) -> None:
        _, _, registers, _, x, h, y, qkv, _, o, best = self.memory
        *_, give, give_pair, take, _, _ = self.kernels
        for _ in range_(registers[1]):
            if neighbour is None:
                give(self.out.acquire(1), registers, y, o, best)
            else:
                give_pair(neighbour.acquire(1), self.out.acquire(1), registers, y, o, best)
                neighbour.release(1)
            self.out.release(1)
            take(self.vector.acquire(1), registers, x, h, qkv, o, best)
            self.vector.release(1)

    def _leave(self, told: Endpoint | None) -> None:
        registers, qkv, best = self.memory[2], self.memory[7], self.memory[10]
        *_, append, tell = self.kernels
        for _ in range_(registers[2]):
            append(self.cache.acquire(1), registers, qkv)
            self.cache.release(1)
        if told is not None:
            for _ in range_(registers[3]):
                tell(told.acquire(1), best)
                told.release(1)


_MEMORY: Final = 11


def _even(tape: Endpoint, vector: Endpoint, out: Endpoint, cache: Endpoint, *rest: Any) -> None:
    _Core(tape, vector, out, cache, rest[:_MEMORY], rest[_MEMORY:]).run(None, None)


def _first(tape: Endpoint, vector: Endpoint, out: Endpoint, cache: Endpoint, told: Endpoint, *rest: Any) -> None:
    _Core(tape, vector, out, cache, rest[:_MEMORY], rest[_MEMORY:]).run(None, told)


def _odd(tape: Endpoint, vector: Endpoint, out: Endpoint, cache: Endpoint, neighbour: Endpoint, *rest: Any) -> None:
    _Core(tape, vector, out, cache, rest[:_MEMORY], rest[_MEMORY:]).run(neighbour, None)


class _Sequence:
    """A dispatch as fills: for each step the same short list of linear reads for every worker, four at most in a queue."""

    def __init__(self, overlay: _Overlay, position: int, forced: list[int], steps: int) -> None:
        self.overlay = overlay
        self.decoder = overlay.decoder
        self.position = position
        self.forced = forced
        self.steps = steps

    def run(self, arena: HostBuffer, self_cache: HostBuffer, cross_cache: HostBuffer, told: HostBuffer) -> None:
        decoder = self.decoder
        for worker, parameters in enumerate(self.overlay.parameters):
            parameters.send(
                2 + _LAYER_RECORDS * decoder.layers, decoder.layers, 0, self.position, worker, len(self.forced), self.steps
            )
        buffers = [arena, self_cache, cross_cache]
        open_: list[TaskGroup] = []
        leaving: TaskGroup | None = None
        for step in range(self.steps):
            slots = self._slots(step)
            for first in range(0, len(slots), 2):
                if len(open_) == 2:
                    open_.pop(0).finish()
                open_.append(TaskGroup())
                self._fill(slots[first : first + 2], buffers, open_[-1])
                if first == 0:
                    if leaving is not None:
                        leaving.finish()
                    leaving = TaskGroup()
                    self._drain(step, self_cache, told, leaving)
        for group in open_:
            group.finish()
        assert leaving is not None
        leaving.finish()

    def _slots(self, step: int) -> list[list[tuple[int, int, int]]]:
        """The reads of one step in order; each: for every worker (buffer, offset, length)."""
        decoder, size, workers = self.decoder, self.decoder.object, range(self.decoder.workers)
        position = self.position + step
        slots = []
        if step < len(self.forced):
            slots.append([(0, decoder.token_offset(self.forced[step]), size)] * len(workers))
        slots.append([(0, decoder.positions_offset + position * decoder.width, size)] * len(workers))
        before, between, after = decoder.sections
        whole = before + between + after
        for layer in range(decoder.layers):
            at = layer * whole
            first = at if layer == 0 else at - after
            slots.append([(0, (w * decoder.tape + first) * size, (at + before - first) * size) for w in workers])
            slots += self._past(position, layer)
            slots.append([(0, (w * decoder.tape + at + before) * size, between * size) for w in workers])
            blocks = 2 * decoder.cross_blocks
            slots.append([(2, (w * decoder.layers + layer) * blocks * size, blocks * size) for w in workers])
        last = decoder.vocabulary_objects if step + 1 >= len(self.forced) else 0
        slots.append([(0, (w * decoder.tape + decoder.layers * whole - after) * size, (after + last) * size) for w in workers])
        return slots

    def _past(self, position: int, layer: int) -> list[list[tuple[int, int, int]]]:
        """Keys, then values, of the positions before; a worker has every `workers`-th."""
        decoder, size = self.decoder, self.decoder.object
        slots = []
        for kind in range(2):
            slot = []
            for w in range(decoder.workers):
                rows = max(0, -(-(position - w) // decoder.workers))
                start = ((w * decoder.layers + layer) * 2 + kind) * decoder.self_blocks * size
                slot.append((1, start, -(-rows // decoder.rows) * size))
            slots.append(slot)
        return slots

    def _fill(self, slots: list[list[tuple[int, int, int]]], buffers: list[HostBuffer], group: TaskGroup) -> None:
        for slot in slots:
            for worker, (buffer, offset, length) in enumerate(slot):
                if length:
                    source = buffers[buffer]
                    walk = linear(source.type.count, offset, length)
                    self.overlay.tape[worker].prod().fill(source, walk, wait=True, group=group)

    def _drain(self, step: int, self_cache: HostBuffer, told: HostBuffer, group: TaskGroup) -> None:
        """The new keys and values of all layers from the worker whose turn it is, and what the step tells."""
        decoder, d, size = self.decoder, self.decoder.width, self.decoder.object
        row, worker = divmod(self.position + step, decoder.workers)
        kind = decoder.self_blocks * size
        start = worker * decoder.layers * 2 * kind + row // decoder.rows * size + row % decoder.rows * d
        walk = TensorAccessPattern(self_cache.type.shape, start, (1, decoder.layers, 2, d), (0, 2 * kind, kind, 1))
        self.overlay.cache[worker].consumers[0].drain(self_cache, walk, wait=True, group=group)
        self.overlay.told.consumers[0].drain(told, linear(told.type.count, step * RECORD, RECORD), wait=True, group=group)
