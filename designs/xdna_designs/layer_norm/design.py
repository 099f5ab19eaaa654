"""LayerNorm of rows; README.md has the picture."""

from dataclasses import dataclass

from xdna_designs.dataflow import Barrier, Buffer, Endpoint, Kernel, Program, range_, tensor
from xdna_designs.device import Device
from xdna_designs.kernels import kernel_object
from xdna_designs.rows import row_program


@dataclass(frozen=True)
class LayerNorm:
    """The overlay for rows of `width` values."""

    device: Device
    width: int = 384

    def program(self, rows: int) -> Program:
        """y = LayerNorm(x). Host buffers: x bf16[rows, width], gamma and beta f32[2, width], y bf16[rows, width]."""
        row, affine = tensor("bf16", self.width), tensor("f32", 2, self.width)
        kernel = Kernel("layer_norm", kernel_object("layer_norm", DIM_D=self.width), [row, affine, row])
        return row_program("layer_norm", self.device, rows, row, _core, [kernel], constant=affine)


def _core(x: Endpoint, y: Endpoint, affine: Endpoint, params: Buffer, barrier: Barrier, layer_norm: Kernel) -> None:
    barrier.wait_once()
    gamma_beta = affine.acquire(1)
    for _ in range_(params[0]):
        layer_norm(x.acquire(1), gamma_beta, y.acquire(1))
        x.release(1)
        y.release(1)
    affine.release(1)
