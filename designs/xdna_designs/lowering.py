"""From a program to the array's configuration: places, pools, locks, BDs, memory and streams.

Does what the compiler's passes do, conservatively: a design that does not fit here is refused with the tile, the resource
and the limit. The result holds register words, and those are what `npusim` runs.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from xdna_designs.dataflow import Barrier, Buffer, Endpoint, Link, ObjectFifo, Program, Worker
from xdna_designs.device import CORE_ROWS, FIRST_CORE_ROW, LIMITS, MEM_ROW, SHIM_ROW, Device, Direction, Tile
from xdna_designs.routing import Connection, DmaPort, Flow, route
from xdna_designs.taps import WORD, DesignError, to_words
from xdna_designs.words import BufferDescriptor, QueuePush

ALIGNMENT: Final = 64


@dataclass
class Pool:
    """Buffers of one object size on one tile, and the two locks that count them."""

    name: str
    tile: Tile
    nbytes: int
    depth: int
    free: int = -1
    full: int = -1
    addresses: list[int] = field(default_factory=list)


@dataclass
class Chain:
    """The ring of BDs that serves one end of one fifo."""

    end: Endpoint
    port: DmaPort
    pools: list[Pool]
    bds: list[int] = field(default_factory=list)


@dataclass
class TileConfiguration:
    """What is written into one tile before the first dispatch."""

    locks: dict[int, int] = field(default_factory=dict)
    bds: dict[int, tuple[int, ...]] = field(default_factory=dict)
    queues: list[tuple[Direction, int, QueuePush]] = field(default_factory=list)
    regions: list[tuple[str, int, int]] = field(default_factory=list)
    switch: list[Connection] = field(default_factory=list)


@dataclass
class Configuration:
    """A whole array, ready to be loaded, and where the parts of the program went."""

    program: Program
    tiles: dict[Tile, TileConfiguration]
    places: dict[Worker, Tile]
    pools: dict[Endpoint, list[Pool]]
    chains: list[Chain]
    ports: dict[Endpoint, DmaPort]
    buffers: dict[Buffer, tuple[Tile, int]]
    barriers: dict[Barrier, tuple[Tile, int]]
    flows: list[Flow]

    @property
    def device(self) -> Device:
        """The generation it is for."""
        return self.program.device


def lower(program: Program) -> Configuration:
    """Place and configure a program. Raises DesignError when it does not fit."""
    return _Lowering(program).run()


class _Lowering:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.device = program.device
        self.tiles: dict[Tile, TileConfiguration] = defaultdict(TileConfiguration)
        self.places: dict[Worker, Tile] = {}
        self.links: dict[Link, Tile] = {}
        self.pools: dict[Endpoint, list[Pool]] = {}
        self.made: list[Pool] = []
        self.chains: list[Chain] = []
        self.ports: dict[Endpoint, DmaPort] = {}
        self.buffers: dict[Buffer, tuple[Tile, int]] = {}
        self.barriers: dict[Barrier, tuple[Tile, int]] = {}
        self.taken: dict[tuple[Tile, Direction], set[int]] = defaultdict(set)

    def run(self) -> Configuration:
        self._place_workers()
        self._place_links()
        for fifo in self.program.fifos:
            self._host_end(fifo)
        for fifo in self.program.fifos:
            self._open_fifo(fifo)
        self._number_locks()
        self._lay_out_memory()
        self._write_descriptors()
        flows = self._flows()
        for tile, connections in route(flows, self.device).items():
            self.tiles[tile].switch = connections
        return Configuration(
            self.program, dict(self.tiles), self.places, self.pools, self.chains, self.ports, self.buffers, self.barriers, flows
        )

    # Places

    def _place_workers(self) -> None:
        taken = {worker.tile for worker in self.program.workers if worker.tile}
        free = (
            tile
            for column in range(self.device.columns)
            for row in range(FIRST_CORE_ROW, FIRST_CORE_ROW + CORE_ROWS)
            if (tile := Tile(column, row)) not in taken
        )
        for worker in self.program.workers:
            place = worker.tile or next(free, None)
            if place is None:
                raise DesignError(f"{worker.name}: {self.device.name} has {self.device.columns * CORE_ROWS} cores, all taken")
            if self.device.kind(place) != "core":
                raise DesignError(f"{worker.name}: tile {place} is no core")
            if place in self.places.values():
                raise DesignError(f"{worker.name}: tile {place} already has a worker")
            self.places[worker] = place

    def _place_links(self) -> None:
        for index, link in enumerate(self.program.links):
            columns = [self.places[end.worker].column for end in self._opposite_ends(link) if end.worker]
            tile = link.tile or Tile(columns[0] if columns else index % self.device.columns, MEM_ROW)
            if self.device.kind(tile) != "mem":
                raise DesignError(f"the link of {link.whole.fifo.name}: tile {tile} is no MemTile")
            self.links[link] = tile

    @staticmethod
    def _opposite_ends(link: Link) -> Iterator[Endpoint]:
        for end in link.outputs:
            yield from end.fifo.consumers
        for end in link.inputs:
            if end.fifo.producer:
                yield end.fifo.producer

    def _tile_of(self, end: Endpoint) -> Tile | None:
        if end.worker is not None:
            return self.places[end.worker]
        return self.links[end.link] if end.link is not None else None

    # Ends of fifos

    def _host_end(self, fifo: ObjectFifo) -> None:
        """Where the host's end of a fifo meets the array: the column of the other end, else the next with a free channel."""
        producer, consumers = fifo.producer, fifo.consumers
        direction: Direction
        if producer is None or self._tile_of(producer) is None:
            end, direction, near = fifo.prod(), "MM2S", [self._tile_of(consumer) for consumer in consumers]
        elif not consumers or self._tile_of(consumers[0]) is None:
            end, direction, near = consumers[0] if consumers else fifo.cons(), "S2MM", [self._tile_of(producer)]
        else:
            return
        wanted = end.tile.column if end.tile else next((tile.column for tile in near if tile), 0)
        columns = [wanted] if end.tile else [(wanted + step) % self.device.columns for step in range(self.device.columns)]
        limit = LIMITS["shim"].channels(direction)
        for column in columns:
            tile = Tile(column, SHIM_ROW)
            if end.channel is not None or len(self.taken[tile, direction]) < limit:
                self.ports[end] = self._port(end, tile, direction)
                return
        raise DesignError(f"{fifo.name}: shim tile {Tile(wanted, SHIM_ROW)} has no free {direction} channel of {limit}")

    def _port(self, end: Endpoint, tile: Tile, direction: Direction) -> DmaPort:
        limit = LIMITS[self.device.kind(tile)].channels(direction)
        taken = self.taken[tile, direction]
        channel = end.channel if end.channel is not None else next((c for c in range(limit) if c not in taken), limit)
        if channel >= limit or channel in taken:
            raise DesignError(f"{end.fifo.name}: tile {tile} has {limit} {direction} channels, all taken or {channel} not there")
        taken.add(channel)
        return DmaPort(tile, direction, channel)

    def _open_fifo(self, fifo: ObjectFifo) -> None:
        producer = fifo.prod()
        source = self._tile_of(producer)
        if self._is_shared(fifo, source):
            assert source is not None
            pool = self._pool(fifo.name, source, fifo.type.nbytes, max(producer.depth, fifo.consumers[0].depth))
            self.pools[producer] = self.pools[fifo.consumers[0]] = [pool]
            return
        if source is not None:
            self._serve(producer, source, "MM2S")
        for consumer in fifo.consumers:
            tile = self._tile_of(consumer)
            if tile is not None:
                self._serve(consumer, tile, "S2MM")

    def _is_shared(self, fifo: ObjectFifo, source: Tile | None) -> bool:
        """Whether both ends reach the same memory, so that no DMA is needed."""
        if source is None or len(fifo.consumers) != 1 or fifo.via_dma or fifo.to_stream or fifo.consumers[0].from_stream:
            return False
        ends = (fifo.prod(), fifo.consumers[0])
        if any(end.worker is None for end in ends):
            return False
        goal = self._tile_of(ends[1])
        return goal is not None and (goal == source or source.is_neighbour(goal))

    def _serve(self, end: Endpoint, tile: Tile, direction: Direction) -> None:
        own = end.link is None
        pools = [self._pool(end.fifo.name, tile, end.type.nbytes, end.depth)] if own else self._link_pools(end, tile)
        self.pools[end] = pools
        self.ports[end] = self._port(end, tile, direction)
        self.chains.append(Chain(end, self.ports[end], pools))

    def _pool(self, name: str, tile: Tile, nbytes: int, depth: int) -> Pool:
        pool = Pool(name, tile, nbytes, depth)
        self.made.append(pool)
        return pool

    def _link_pools(self, end: Endpoint, tile: Tile) -> list[Pool]:
        """A link's pools, one for each part; the whole's end sees them all, a part's end its own."""
        link = end.link
        assert link is not None
        known = [self.pools[other] for other in (*link.inputs, *link.outputs) if other in self.pools]
        whole = next((pools for pools in known if len(pools) == len(link.parts)), None)
        if whole is None:
            whole = [self._pool(part.fifo.name, tile, part.type.nbytes, link.whole.depth) for part in link.parts]
            self.pools[link.whole] = whole
        return whole if end is link.whole else [whole[link.parts.index(end)]]

    # Resources of a tile

    def _number_locks(self) -> None:
        counts: dict[Tile, int] = defaultdict(int)

        def next_lock(tile: Tile, value: int, what: str) -> int:
            lock = counts[tile]
            counts[tile] += 1
            limit = LIMITS[self.device.kind(tile)].locks
            if lock >= limit:
                raise DesignError(f"{what}: tile {tile} has {limit} locks, all taken")
            self.tiles[tile].locks[lock] = value
            return lock

        for pool in self.made:
            pool.free = next_lock(pool.tile, pool.depth, pool.name)
            pool.full = next_lock(pool.tile, 0, pool.name)
        for worker in self.program.workers:
            for barrier in worker.barriers:
                tile = self.places[worker]
                self.barriers[barrier] = (tile, next_lock(tile, 0, f"a barrier of {worker.name}"))

    def _lay_out_memory(self) -> None:
        wanted: dict[Tile, list[tuple[int, str, Pool | Buffer]]] = defaultdict(list)
        grouped = {id(pool) for link in self.links for pool in self.pools[link.whole]}
        for pool in self.made:
            if id(pool) not in grouped:
                wanted[pool.tile] += [(pool.nbytes, f"{pool.name}[{slot}]", pool) for slot in range(pool.depth)]
        for link, tile in self.links.items():
            pools = self.pools[link.whole]
            wanted[tile] += [
                (link.whole.type.nbytes, f"{link.whole.fifo.name}[{slot}]", pools[0]) for slot in range(pools[0].depth)
            ]
        for worker in self.program.workers:
            for buffer in worker.buffers:
                wanted[self.places[worker]].append((buffer.type.nbytes, buffer.name, buffer))
        stacks = {self.places[worker]: worker.stack_size for worker in self.program.workers}
        for tile in sorted({*wanted, *stacks}):
            regions = allocate(self.device, tile, stacks.get(tile, 0), [(size, name) for size, name, _ in wanted[tile]])
            if tile in stacks:
                self.tiles[tile].regions.append(("stack", 0, stacks[tile]))
            self.tiles[tile].regions += [(name, at, size) for (size, name, _), at in zip(wanted[tile], regions, strict=True)]
            for (_, _, owner), address in zip(wanted[tile], regions, strict=True):
                if isinstance(owner, Pool):
                    owner.addresses.append(address)
                else:
                    self.buffers[owner] = (tile, address)
        self._place_parts()

    def _place_parts(self) -> None:
        """Parts of a link lie inside the whole's buffers."""
        for link in self.links:
            pools = self.pools[link.whole]
            bases = list(pools[0].addresses)
            item = link.whole.type.nbytes // link.whole.type.count
            for pool, offset in zip(pools, link.offsets, strict=True):
                pool.addresses = [base + offset * item for base in bases]

    def _write_descriptors(self) -> None:
        order = {"S2MM": 0, "MM2S": 1}
        used: dict[tuple[Tile, int], int] = defaultdict(int)
        for chain in sorted(self.chains, key=lambda chain: (chain.port.tile, order[chain.port.direction], chain.port.channel)):
            tile = chain.port.tile
            kind = self.device.kind(tile)
            odd = chain.port.channel % 2 if kind == "mem" else 0
            limit = LIMITS[kind].bds // (2 if kind == "mem" else 1)
            count = sum(pool.depth for pool in chain.pools)
            first = used[tile, odd]
            used[tile, odd] += count
            if first + count > limit:
                which = ("odd " if odd else "even ") + "channels" if kind == "mem" else "its channels"
                raise DesignError(f"{chain.end.fifo.name}: tile {tile} has {limit} BDs for {which}, {first + count} are needed")
            chain.bds = [first + index + (limit * odd) for index in range(count)]
            for bd, descriptor in zip(chain.bds, self._descriptors(chain), strict=True):
                try:
                    self.tiles[tile].bds[bd] = descriptor.encode(kind)
                except OverflowError as error:
                    raise DesignError(f"{chain.end.fifo.name}: BD {bd} of tile {tile}: {error}") from error
            self.tiles[tile].queues.append((chain.port.direction, chain.port.channel, QueuePush(chain.bds[0])))

    def _descriptors(self, chain: Chain) -> Iterator[BufferDescriptor]:
        end = chain.end
        walk = end.fifo.to_stream if chain.port.direction == "MM2S" else end.from_stream
        where = f"{end.fifo.name} on tile {chain.port.tile}"
        kind = self.device.kind(chain.port.tile)
        slots = [(pool, slot) for slot in range(chain.pools[0].depth) for pool in chain.pools]
        for index, (pool, slot) in enumerate(slots):
            dims: tuple[tuple[int, int], ...] = ()
            if walk:
                dims = tuple(to_words([size for size, _ in walk], [stride for _, stride in walk], end.type.dtype, where))
                if len(dims) > LIMITS[kind].dims:
                    raise DesignError(f"{where}: a walk of {len(dims)} dimensions, a {kind} BD has {LIMITS[kind].dims}")
            first, second = (pool.free, pool.full) if chain.port.direction == "S2MM" else (pool.full, pool.free)
            following = chain.bds[(index + 1) % len(slots)]
            yield BufferDescriptor(
                pool.nbytes // WORD, pool.addresses[slot], dims, acquire=(first, -1), release=(second, 1), next=following
            )

    def _flows(self) -> list[Flow]:
        flows = []
        for fifo in self.program.fifos:
            sinks = [self.ports[end] for end in fifo.consumers if end in self.ports]
            if fifo.prod() in self.ports and sinks:
                flows.append(Flow(fifo.name, self.ports[fifo.prod()], tuple(sinks)))
        return flows


def allocate(device: Device, tile: Tile, stack: int, wanted: list[tuple[int, str]]) -> list[int]:
    """Addresses for buffers above the stack, larger ones first, none across a bank if they can be kept from it.

    Raises DesignError with the tile and the bytes when they do not fit.
    """
    limits = LIMITS[device.kind(tile)]
    bank = limits.memory // limits.banks
    order = sorted(range(len(wanted)), key=lambda index: (-wanted[index][0], index))
    ends = [max(0, min(bank, stack - number * bank)) for number in range(limits.banks)]
    addresses = [0] * len(wanted)
    for index in order:
        size = _aligned(wanted[index][0])
        fits = [number for number in range(limits.banks) if _aligned(ends[number]) + size <= bank]
        if not fits:
            break
        number = fits[0]
        addresses[index] = number * bank + _aligned(ends[number])
        ends[number] = _aligned(ends[number]) + size
    else:
        return addresses
    position = _aligned(stack)
    for index in order:
        addresses[index] = position
        position += _aligned(wanted[index][0])
    if position > limits.memory:
        raise DesignError(f"tile {tile} has {limits.memory} bytes of memory, stack and buffers need {position}")
    return addresses


def _aligned(value: int) -> int:
    return -(-value // ALIGNMENT) * ALIGNMENT
