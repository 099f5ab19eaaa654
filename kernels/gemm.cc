// GEMM of one output tile with an epilogue chosen at run time.
//
// C[M, N] = epilogue(A[M, K] B[K, N]), M = DIM_M, N = DIM_N; K arrives in pieces of DIM_K.
// a: blocks of r x s, row-major, blocks in row-major order. b: blocks of s x t likewise. acc: float32, blocks of r x t.
// c: bfloat16, blocks of r x t. Bias: float32[DIM_N] at the start of a b object. Residual: a b object of DIM_K rows of C, row-major.
// GLU: columns of b hold DIM_N / 2 values, then their gates; two halves fill one c.
// Limits: M, K, N multiples of 2r, s, 2t; 4-byte bias fits a b object. Stack: 1024 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_M
#define DIM_M 64
#endif
#ifndef DIM_K
#define DIM_K 64
#endif
#ifndef DIM_N
#define DIM_N 64
#endif

namespace {

#if __AIE_ARCH__ == 20
constexpr unsigned r = 4, s = 8, t = 4;
#else
constexpr unsigned r = 8, s = 8, t = 8;
#endif
static_assert(DIM_M % (2 * r) == 0 && DIM_K % s == 0 && DIM_N % (2 * t) == 0);
static_assert(DIM_K >= 2, "the bias of DIM_N float32 rides in an object of DIM_K x DIM_N bfloat16");
static_assert(DIM_M % DIM_K == 0, "a residual is a whole number of objects");

constexpr unsigned kColumns = DIM_N / t, kDepth = DIM_K / s, kRows = DIM_M / r;
constexpr unsigned kBlock = r * t;
using Product = aie::mmul<r, s, t, bfloat16, bfloat16, accfloat>;
using Block = aie::vector<float, kBlock>;

enum Epilogue : int32_t { kNone = 0, kBias = 1, kGelu = 2, kSilu = 3, kGlu = 4, kResidual = 5 };

template <typename Function>
void each_register(float* block, Function function) {
  for (unsigned i = 0; i < kBlock; i += kernel_math::kLanes) aie::store_v(block + i, function(aie::load_v<kernel_math::kLanes>(block + i)));
}

}  // namespace

extern "C" {

void gemm_zero(float* acc) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned i = 0; i < DIM_M * DIM_N; i += kernel_math::kLanes) aie::store_v(acc + i, aie::zeros<float, kernel_math::kLanes>());
}

void gemm_accumulate(const bfloat16* a, const bfloat16* b, float* acc) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned row = 0; row < kRows; ++row) {
    for (unsigned column = 0; column < kColumns; ++column) {
      float* c = acc + (row * kColumns + column) * kBlock;
      Product sum(aie::load_v<kBlock>(c));
      for (unsigned k = 0; k < kDepth; ++k) {
        sum.mac(aie::load_v<r * s>(a + (row * kDepth + k) * r * s), aie::load_v<s * t>(b + (k * kColumns + column) * s * t));
      }
      aie::store_v(c, sum.to_vector<float>());
    }
  }
}

void gemm_bias(const bfloat16* object, float* acc, int32_t epilogue) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  if (epilogue == kNone) return;
  const float* bias = reinterpret_cast<const float*>(object);
  for (unsigned column = 0; column < kColumns; ++column) {
    Block rows;
    for (unsigned i = 0; i < r; ++i) rows.insert(i, aie::load_v<t>(bias + column * t));
    for (unsigned row = 0; row < kRows; ++row) {
      float* c = acc + (row * kColumns + column) * kBlock;
      aie::store_v(c, aie::add(aie::load_v<kBlock>(c), rows));
    }
  }
}

/// Every core of a column gets the residual of all of them in turn; state[0] counts objects, `core` says which are ours.
void gemm_residual(const bfloat16* object, float* acc, int32_t* state, int32_t core, int32_t cores) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  constexpr int32_t pieces = DIM_M / DIM_K;
  const int32_t index = state[0];
  state[0] = index + 1 == pieces * cores ? 0 : index + 1;
  const int32_t piece = index - core * pieces;
  if (piece < 0 || piece >= pieces) return;
  for (unsigned row = 0; row < DIM_K; ++row) {
    const unsigned line = static_cast<unsigned>(piece) * DIM_K + row;
    for (unsigned column = 0; column < DIM_N; column += 8) {
      const aie::accum<accfloat, 8> wide(aie::load_v<8>(object + row * DIM_N + column));
      const auto values = wide.template to_vector<float>();
      for (unsigned part = 0; part < 8 / t; ++part) {
        float* c = acc + ((line / r) * kColumns + column / t + part) * kBlock + (line % r) * t;
        aie::store_v(c, aie::add(aie::load_v<t>(c), values.template extract<t>(part)));
      }
    }
  }
}

/// For GLU state[1] says which half of c comes next.
void gemm_store(float* acc, bfloat16* c, int32_t* state, int32_t epilogue) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  if (epilogue == kGlu) {
    constexpr unsigned columns = kColumns / 2;
    const unsigned half = static_cast<unsigned>(state[1]);
    state[1] ^= 1;
    for (unsigned row = 0; row < kRows; ++row) {
      for (unsigned column = 0; column < columns; ++column) {
        const float* value = acc + (row * kColumns + column) * kBlock;
        const float* gate = value + columns * kBlock;
        bfloat16* out = c + (row * kColumns + half * columns + column) * kBlock;
        for (unsigned i = 0; i < kBlock; i += kernel_math::kLanes) {
          const auto open = kernel_math::sigmoid(aie::load_v<kernel_math::kLanes>(gate + i));
          aie::store_v(out + i, kernel_math::narrowed(kernel_math::times(aie::load_v<kernel_math::kLanes>(value + i), open)));
        }
      }
    }
    return;
  }
  for (unsigned block = 0; block < kRows * kColumns; ++block) {
    float* sums = acc + block * kBlock;
    if (epilogue == kGelu) each_register(sums, kernel_math::gelu);
    if (epilogue == kSilu) each_register(sums, kernel_math::silu);
    for (unsigned i = 0; i < kBlock; i += kernel_math::kLanes) {
      aie::store_v(c + block * kBlock + i, kernel_math::narrowed(aie::load_v<kernel_math::kLanes>(sums + i)));
    }
  }
}

}  // extern "C"
