"""What designs that work on rows one by one have in common: a worker a column, rows in, rows out."""

from collections.abc import Callable, Sequence
from typing import Any

from xdna_designs.dataflow import (
    DesignError,
    HostBuffer,
    ObjectFifo,
    Program,
    Runtime,
    TaskGroup,
    Tile,
    Worker,
    linear,
    tensor,
)
from xdna_designs.device import FIRST_CORE_ROW, Device
from xdna_designs.parameters import Parameters
from xdna_designs.taps import TensorType

STACK = 4096


def row_program(
    name: str,
    device: Device,
    rows: int,
    row: TensorType,
    core: Callable[..., None],
    kernels: Sequence[Any],
    numbers: Sequence[int] = (),
    constant: TensorType | None = None,
) -> Program:
    """A program that sends `rows` rows through the workers of all columns.

    `core` gets its ends for rows in and out, its end for the constant if there is one, its int32 parameters (rows, *numbers),
    a barrier and the kernels. Host buffers: rows in, the constant if there is one, rows out.
    """
    lanes = device.columns
    if rows <= 0 or rows % lanes:
        raise DesignError(f"{name}: {rows} rows; they must be a multiple of {lanes}")
    inputs = [ObjectFifo(row, name=f"x{column}") for column in range(lanes)]
    outputs = [ObjectFifo(row, name=f"y{column}") for column in range(lanes)]
    shared = ObjectFifo(constant, name="constant", depth=1) if constant else None
    parameters = [Parameters(str(column)) for column in range(lanes)]
    workers = []
    for column in range(lanes):
        inputs[column].prod(tile=Tile(column, 0))
        outputs[column].cons(tile=Tile(column, 0))
        ends = [inputs[column].cons(), outputs[column].prod(), *([shared.cons()] if shared else [])]
        place = Tile(column, FIRST_CORE_ROW)
        workers.append(
            Worker(
                core,
                [*ends, parameters[column].numbers, parameters[column].barrier, *kernels],
                tile=place,
                stack_size=STACK,
                name=f"{name}{column}",
            )
        )

    def sequence(x: HostBuffer, *others: HostBuffer) -> None:
        for entry in parameters:
            entry.send(rows // lanes, *numbers)
        group = TaskGroup()
        if shared:
            shared.prod().fill(others[0], group=group)
        share = rows // lanes * row.count
        for column in range(lanes):
            inputs[column].prod().fill(x, linear(x.type.count, column * share, share), group=group)
            outputs[column].consumers[0].drain(others[-1], linear(x.type.count, column * share, share), wait=True, group=group)
        group.finish()

    whole = tensor(row.dtype, rows, row.count)
    return Program(device, Runtime(sequence, [whole, *([constant] if constant else []), whole]), workers, name=name)
