"""Whether an NPU computes what it should: a product of small whole numbers, exact in every format on the way."""

import numpy as np

from xdna_asr.errors import NpuFault
from xdna_asr.runtime.npu import Npu, Overlay
from xdna_designs.bf16 import narrow, widen
from xdna_designs.device import DEVICES
from xdna_designs.gemm.design import Epilogue, Gemm
from xdna_designs.gemm.layout import pack
from xdna_designs.instructions import stream
from xdna_designs.lowering import lower


def check_gemm(npu: Npu, overlay: Overlay) -> None:
    """Run one product on the GEMM overlay. Raises NpuFault when a number is wrong: this NPU is then left alone."""
    gemm = Gemm(DEVICES[npu.name])
    rows, depth, columns = gemm.rows, gemm.k, gemm.columns
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
    words = stream(lower(gemm.program(rows, depth, columns, Epilogue.NONE)))
    inp, weights, out = npu.buffer(2 * a.size), npu.buffer(2 * gemm.packed(depth, columns)), npu.buffer(2 * rows * columns)
    inp.write(narrow(a))
    weights.write(pack(gemm, b, np.zeros(columns, np.float32)))
    overlay.run(words, inp, weights, out)
    got = widen(out.read(np.uint16, rows * columns)).reshape(rows, columns)
    wrong = int(np.count_nonzero(got != a @ b))
    if wrong:
        raise NpuFault(
            f"the NPU's self-check failed: {wrong} of {got.size} numbers of a matrix product are wrong; the CPU is used"
        )
