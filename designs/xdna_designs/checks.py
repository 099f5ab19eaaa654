"""Twenty static checks that a design must pass before anybody runs it.

Most limits already stop `lower`; these look at what fits and would still go wrong on the chip. A problem names the tile or
fifo, the resource and the limit.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final

import numpy as np

from xdna_designs import cost
from xdna_designs.dataflow import Buffer, Endpoint, ObjectFifo, Program, SetBarrier, Transfer, Worker, WriteBuffer
from xdna_designs.device import (
    DISPATCH_LIMIT_SECONDS,
    INSTRUCTION_HEAP_BYTES,
    LIMITS,
    MAX_HOST_BUFFERS,
    MAX_LOCK_VALUE,
    QUEUE_DEPTH,
    SHIM_ROW,
)
from xdna_designs.instructions import Wait, Write, operations_of, stream
from xdna_designs.kernels import parse_object
from xdna_designs.lowering import Configuration, lower
from xdna_designs.program import Acquire, Call, Load, Loop, Release, Step, WaitBarrier, steps_of
from xdna_designs.source_checks import (
    blocks_divide,
    devices_differ_in_one_table,
    kernels_of,
    kernels_set_rounding,
    programs_fit,
    stack_of,
)
from xdna_designs.taps import ITEM_BYTES, DesignError, Problems, tiles_of
from xdna_designs.words import place_of

_DATA_ALLOWANCE: Final = 512

Check = Callable[[Configuration], Problems]


def problems(program: Program) -> list[str]:
    """Everything wrong with a program, each with the number of its check; empty when it may run."""
    try:
        return _problems_of(lower(program))
    except DesignError as error:
        return [f"lowering: {error}"]


def verify(program: Program) -> Configuration:
    """The configuration of a program that passes all checks. Raises DesignError with every problem."""
    configuration = lower(program)
    found = _problems_of(configuration)
    if found:
        raise DesignError("\n".join(found))
    return configuration


def _problems_of(configuration: Configuration) -> list[str]:
    found = []
    for number, check in CHECKS.items():
        try:
            found += [f"check {number}: {problem}" for problem in check(configuration)]
        except DesignError as error:
            found.append(f"check {number}: {error}")
    return found


def memory_fits(configuration: Configuration) -> Problems:
    """1: stack, data and buffers fit a tile, and no stack is smaller than its kernels ask."""
    for tile, settings in configuration.tiles.items():
        kind = configuration.device.kind(tile)
        limit = LIMITS[kind].memory
        used = sum(size for _, _, size in settings.regions) + (_DATA_ALLOWANCE if kind == "core" else 0)
        if settings.regions and used > limit:
            yield f"tile {tile}: {used} bytes of stack, data and buffers, the limit is {limit}"
    for worker, tile in configuration.places.items():
        wanted = max((stack_of(kernel) for kernel in kernels_of(worker)), default=0)
        if worker.stack_size < wanted:
            yield f"tile {tile}: a stack of {worker.stack_size} bytes, its kernels need {wanted}"


def queues_fit(configuration: Configuration) -> Problems:
    """3: tasks waiting at every shim channel; a task is over at the latest when its group's wait is."""
    outstanding: Counter[int] = Counter()
    worst: Counter[int] = Counter()
    for operation in operations_of(configuration, configuration.program.runtime.orders):
        if isinstance(operation, Write) and place_of(operation.address)[0].row == SHIM_ROW:
            outstanding[operation.address] += 1
            worst[operation.address] = max(worst[operation.address], outstanding[operation.address])
        elif isinstance(operation, Wait):
            outstanding.clear()
    for address, count in worst.items():
        if count > QUEUE_DEPTH:
            tile, register = place_of(address)
            yield f"shim tile {tile}: {count} tasks on the queue at {register:#x} before a wait, the limit is {QUEUE_DEPTH}"


def lock_values_fit(configuration: Configuration) -> Problems:
    """4: values of locks."""
    for tile, settings in configuration.tiles.items():
        for lock, value in settings.locks.items():
            if value > MAX_LOCK_VALUE:
                yield f"tile {tile}: lock {lock} starts at {value}, the limit is {MAX_LOCK_VALUE}"


def outputs_are_written_once(configuration: Configuration) -> Problems:
    """6: the drains into one host buffer cover each element exactly once; of a partial buffer, at most once."""
    by_argument: dict[int, list[Transfer]] = defaultdict(list)
    for order in configuration.program.runtime.orders:
        if isinstance(order, Transfer) and order.kind == "drain":
            by_argument[order.argument.index].append(order)
    for index, orders in by_argument.items():
        count = orders[0].argument.type.count
        visited = np.concatenate([order.tap.indices() for order in orders])
        if visited.min() < 0 or visited.max() >= count:
            yield f"host buffer {index}: a drain writes element {int(visited.max())} of {count}"
        elif len(np.unique(visited)) != len(visited):
            yield f"host buffer {index}: {len(visited) - len(np.unique(visited))} elements are written twice"
        elif len(visited) != count and index not in configuration.program.runtime.partial:
            yield f"host buffer {index}: {count - len(visited)} of {count} elements are never written"


def links_tile(configuration: Configuration) -> Problems:
    """7: the parts of a split or join lie side by side and fill the whole."""
    for link in configuration.program.links:
        whole, parts = link.whole.type, link.parts
        covered = [
            offset + index
            for part, offset in zip(parts, link.offsets, strict=True)
            for index in range(part.type.nbytes // _item(link.whole))
        ]
        if len(parts) == 1:
            if parts[0].type.nbytes != whole.nbytes:
                yield f"{link.whole.fifo.name}: objects of {whole.nbytes} bytes in, {parts[0].type.nbytes} out"
        elif not tiles_of(np.array(covered), whole.count):
            yield f"{link.whole.fifo.name}: parts at {link.offsets} do not fill {whole.count} elements exactly once"


def acquires_balance(configuration: Configuration) -> Problems:
    """8: what one round of a worker acquires it releases, and it never holds more than the end's depth."""
    for worker in configuration.program.workers:
        held: Counter[Endpoint] = Counter()
        yield from _balance(worker, worker.body, held)
        for end, count in held.items():
            if count:
                yield f"{worker.name}: {count} objects of {end.fifo.name} are held at the end of a round"


def _balance(worker: Worker, body: list[Step], held: Counter[Endpoint]) -> Problems:
    for step in body:
        if isinstance(step, Acquire):
            held[step.endpoint] = max(held[step.endpoint], step.count)
            if held[step.endpoint] > step.endpoint.depth:
                name, depth = step.endpoint.fifo.name, step.endpoint.depth
                yield f"{worker.name}: holds {step.count} objects of {name}, its depth is {depth}"
        elif isinstance(step, Release):
            held[step.endpoint] -= step.count
            if held[step.endpoint] < 0:
                yield f"{worker.name}: releases objects of {step.endpoint.fifo.name} that it does not hold"
        elif isinstance(step, Loop):
            before = Counter(held)
            yield from _balance(worker, step.body, held)
            for end in {*before, *held}:
                if before[end] != held[end]:
                    yield f"{worker.name}: each turn of a loop leaves {held[end] - before[end]} objects of {end.fifo.name} more"


def streams_are_whole(configuration: Configuration) -> Problems:
    """9: walks over an object visit as many elements as it (or its part) has."""
    for chain in configuration.chains:
        walk = chain.end.fifo.to_stream if chain.port.direction == "MM2S" else chain.end.from_stream
        if walk:
            visited = int(np.prod([size for size, _ in walk]))
            wanted = chain.pools[0].nbytes // _item(chain.end)
            if visited != wanted:
                where = f"{chain.end.fifo.name} on tile {chain.port.tile}"
                yield f"{where}: its walk visits {visited} elements, an object has {wanted}"


def counts_agree(configuration: Configuration) -> Problems:
    """10: transfers are whole numbers of objects, and a worker's fixed loops consume what the sequence sends."""
    sent: Counter[ObjectFifo] = Counter()
    for order in configuration.program.runtime.orders:
        if isinstance(order, Transfer):
            fifo = order.endpoint.fifo
            if order.tap.count * ITEM_BYTES[order.argument.type.dtype] % fifo.type.nbytes:
                yield f"{fifo.name}: a {order.kind} of {order.tap.count} elements is no whole number of {fifo.type} objects"
            sent[fifo] += order.tap.count * ITEM_BYTES[order.argument.type.dtype] // fifo.type.nbytes
    rounds: dict[Worker, dict[ObjectFifo, float]] = {}
    for worker in configuration.program.workers:
        for end in worker.endpoints:
            used = _used(worker.body, end)
            host = _host_fifo(end)
            if used and host in sent:
                rounds.setdefault(worker, {})[host] = sent[host] * _objects_a_host_object(end, host) / used
    for worker, by_fifo in rounds.items():
        if len(set(by_fifo.values())) > 1:
            shares = ", ".join(f"{fifo.name} for {count:g} rounds" for fifo, count in by_fifo.items())
            yield f"{worker.name}: the sequence sends {shares}"


def _used(body: list[Step], end: Endpoint) -> int | None:
    """Objects of an end that one round releases; None when a parameter decides."""
    total = 0
    for step in body:
        if isinstance(step, Release) and step.endpoint is end:
            total += step.count
        elif isinstance(step, Loop):
            inner = _used(step.body, end)
            if inner is None or (inner and not isinstance(step.count, int)):
                return None
            total += inner * step.count if isinstance(step.count, int) else 0
    return total


def _host_fifo(end: Endpoint) -> ObjectFifo:
    """The host's fifo behind a worker's end: itself, or what is linked to it."""
    other = end.fifo.prod() if end.role == "consumer" else next(iter(end.fifo.consumers), None)
    if other is not None and other.link is not None:
        link = other.link
        return (link.inputs if end.role == "consumer" else link.outputs)[0].fifo
    return end.fifo


def _objects_a_host_object(end: Endpoint, host: ObjectFifo) -> float:
    other = end.fifo.prod() if end.role == "consumer" else next(iter(end.fifo.consumers), None)
    split = other is not None and other.link is not None and len(other.link.parts) > 1
    return 1.0 if split else host.type.nbytes / end.type.nbytes


def places_are_legal(configuration: Configuration) -> Problems:
    """11: neighbours where memory or a cascade is shared."""
    for flow in configuration.program.cascades:
        source, goal = configuration.places[flow.source], configuration.places[flow.destination]
        if (goal.column - source.column, goal.row - source.row) not in ((1, 0), (0, -1)):
            yield f"the cascade from tile {source} to tile {goal}: it goes to the southern or eastern neighbour only"
    for worker, tile in configuration.places.items():
        for buffer in _buffers(worker):
            place = configuration.buffers[buffer][0]
            if place != tile and not place.is_neighbour(tile):
                yield f"{worker.name}: tile {tile} does not reach {buffer.name} on tile {place}"


def arguments_match(configuration: Configuration) -> Problems:
    """12: host buffers an xclbin kernel can have, and kernels that exist with these arguments."""
    count = len(configuration.program.runtime.types)
    if count > MAX_HOST_BUFFERS:
        yield f"{count} host buffers, an xclbin kernel takes {MAX_HOST_BUFFERS}"
    for kernel in {kernel for worker in configuration.program.workers for kernel in kernels_of(worker)}:
        path = parse_object(kernel.object_file_name).path
        if not path.exists():
            continue
        found = re.search(rf"\bvoid {kernel.name}\(([^)]*)\)", path.read_text())
        if found is None:
            yield f"{kernel.object_file_name}: {path.name} has no function {kernel.name}"
        elif len(found[1].split(",")) != len(kernel.arg_types):
            yield f"{kernel.name}: declared with {len(kernel.arg_types)} arguments, {path.name} has {len(found[1].split(','))}"


def groups_end_in_a_wait(configuration: Configuration) -> Problems:
    """13: the dispatch ends with a wait for every drain."""
    pending: Counter[ObjectFifo] = Counter()
    for order in configuration.program.runtime.orders:
        if isinstance(order, Transfer) and order.kind == "drain":
            pending[order.endpoint.fifo] += 1
            if order.wait:
                pending[order.endpoint.fifo] = 0
    operations = operations_of(configuration, configuration.program.runtime.orders)
    if not any(isinstance(operation, Wait) for operation in operations):
        yield "the sequence waits for nothing: its dispatch ends before its data is there"
    for fifo, count in pending.items():
        if count:
            yield f"{fifo.name}: the last {count} drains are not waited for"


def broadcasts_are_even(configuration: Configuration) -> Problems:
    """17: the receivers of a broadcast take equally many objects in a round, and have equal depth."""
    for fifo in configuration.program.fifos:
        rates = {_used(end.worker.body, end) for end in fifo.consumers if end.worker is not None}
        if len(fifo.consumers) > 1 and len(rates) > 1:
            yield f"{fifo.name}: its receivers take {sorted(map(str, rates))} objects a round; the slowest stalls all"


def dispatch_is_short(configuration: Configuration) -> Problems:
    """18: predicted time by bandwidth below the limit, instruction stream below the heap."""
    moved = sum(
        order.tap.count * ITEM_BYTES[order.argument.type.dtype]
        for order in configuration.program.runtime.orders
        if isinstance(order, Transfer)
    )
    seconds = moved / cost.value("ddr_bandwidth")
    if seconds > DISPATCH_LIMIT_SECONDS:
        yield f"a predicted {seconds:.2f} s a dispatch, the limit is {DISPATCH_LIMIT_SECONDS} s: the driver ends it after 2 s"
    size = stream(configuration).nbytes
    if size > INSTRUCTION_HEAP_BYTES:
        yield f"an instruction stream of {size} bytes, the heap has {INSTRUCTION_HEAP_BYTES}"


def parameters_are_guarded(configuration: Configuration) -> Problems:
    """19: a worker waits for a barrier before it reads what the sequence writes, and the sequence opens it afterwards."""
    written = {order.buffer for order in configuration.program.runtime.orders if isinstance(order, WriteBuffer)}
    for worker in configuration.program.workers:
        read = sorted(_buffers(worker), key=lambda buffer: buffer.order)
        if not any(buffer in written or buffer.use_write_rtp for buffer in read):
            continue
        first = next((step for step in worker.body), None)
        if not isinstance(first, WaitBarrier):
            name = next(buffer.name for buffer in read if buffer.use_write_rtp or buffer in written)
            yield f"{worker.name}: reads {name} without waiting for a barrier first"
    last_write: dict[Worker | None, int] = {}
    for index, order in enumerate(configuration.program.runtime.orders):
        if isinstance(order, WriteBuffer):
            last_write[order.buffer.worker] = index
        elif isinstance(order, SetBarrier) and order.barrier.worker in last_write:
            del last_write[order.barrier.worker]
    for worker_or_none in last_write:
        if worker_or_none is not None:
            yield f"{worker_or_none.name}: its parameters are written and its barrier is not set afterwards"


def _item(end: Endpoint) -> int:
    return ITEM_BYTES[end.type.dtype]


def _buffers(worker: Worker) -> set[Buffer]:
    """Buffers a worker touches."""
    steps = list(steps_of(worker.body))
    used = [argument for step in steps if isinstance(step, Call) for argument in step.arguments]
    used += [step.count for step in steps if isinstance(step, Loop)]
    return {value.buffer if isinstance(value, Load) else value for value in used if isinstance(value, Buffer | Load)}


CHECKS: Final[dict[int, Check]] = {
    1: memory_fits,
    3: queues_fit,
    4: lock_values_fit,
    6: outputs_are_written_once,
    7: links_tile,
    8: acquires_balance,
    9: streams_are_whole,
    10: counts_agree,
    11: places_are_legal,
    12: arguments_match,
    13: groups_end_in_a_wait,
    14: kernels_set_rounding,
    15: blocks_divide,
    16: programs_fit,
    17: broadcasts_are_even,
    18: dispatch_is_short,
    19: parameters_are_guarded,
    20: devices_differ_in_one_table,
}
"""By number in the list of twenty; 2 (DMA channels), 5 (walks) and parts of 1, 3, 4 and 11 are refused by `lower` already."""
