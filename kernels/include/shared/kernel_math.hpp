// Functions that several kernels share, on vectors of 16 float32: one register.
//
// Polynomials in float32 multiply-adds, because exp2 and tanh of the chip are bfloat16 instructions that peers measured 2-4 %
// off. tests/designs/test_kernels.py measures the stated errors.
#pragma once

#include <aie_api/aie.hpp>

namespace kernel_math {

constexpr unsigned kLanes = 16;
using Floats = aie::vector<float, kLanes>;
using Halves = aie::vector<bfloat16, kLanes>;
using Ints = aie::vector<int32_t, kLanes>;

constexpr float kLog2E = 1.44269504F;
constexpr float kLowest = -1.0e30F;  ///< stands for minus infinity: differences of two of them stay finite

inline Floats spread(float value) { return aie::broadcast<float, kLanes>(value); }

/// a * b + c
inline Floats fma(const Floats& a, const Floats& b, const Floats& c) {
  return aie::mac(aie::accum<accfloat, kLanes>(c), a, b).to_vector<float>();
}

inline Floats times(const Floats& a, const Floats& b) { return aie::mul(a, b).to_vector<float>(); }

template <unsigned N>
Floats horner(const float (&coefficients)[N], const Floats& x) {
  Floats value = spread(coefficients[N - 1]);
  for (unsigned i = N - 1; i-- > 0;) value = fma(value, x, spread(coefficients[i]));
  return value;
}

/// 2 to the power of x, relative error 3e-6; arguments below -126 give 2^-126.
inline Floats exp2(const Floats& x) {
  constexpr float series[] = {1.0F, 0.693121016F, 0.240223497F, 0.0559219755F, 0.00966636837F};
  const Floats bounded = aie::max(x, -126.0F);
  const Ints whole = aie::to_fixed<int32_t>(bounded);
  const Floats fraction = aie::sub(bounded, aie::to_float<float>(whole));
  const Ints word = horner(series, fraction).cast_to<int32_t>();
  return aie::add(word, aie::upshift(whole, 23)).cast_to<float>();
}

/// exp(-|x|) and 1 / (1 + exp(-|x|)), absolute error of the second 6e-5.
struct Tail {
  Floats decay, upper;
};
inline Tail logistic_tail(const Floats& x) {
  constexpr float reciprocal[] = {0.999948978F, -0.996275723F, 0.953420758F, -0.770572901F, 0.417937875F, -0.104484469F};
  const Floats decay = exp2(times(aie::neg(aie::abs(x)), spread(kLog2E)));
  return {decay, horner(reciprocal, decay)};
}

/// 1 / (1 + exp(-x)), absolute error 6e-5.
inline Floats sigmoid(const Floats& x) {
  const Tail tail = logistic_tail(x);
  return aie::select(tail.upper, times(tail.decay, tail.upper), aie::lt(x, 0.0F));
}

/// Hyperbolic tangent, absolute error 1.2e-4.
inline Floats tanh(const Floats& x) { return fma(sigmoid(aie::add(x, x)), spread(2.0F), spread(-1.0F)); }

/// x * sigmoid(x), error 6e-5 of |x|.
inline Floats silu(const Floats& x) { return times(x, sigmoid(x)); }

/// x * Phi(x) with the normal distribution's Phi (the erf form), absolute error 7e-5.
///
/// max(x, 0) - t * (1 - Phi(t)) with t = |x|: the difference from the ramp is smooth and gone by t = 4.2.
inline Floats gelu(const Floats& x) {
  constexpr float tail[] = {0.500018358F, -0.399818689F, 0.00697583193F, 0.0447858274F, 0.0343242958F,
                            -0.0407119505F, 0.0159386508F, -0.00318232877F, 0.00032899846F, -1.40506299e-05F};
  const Floats t = aie::min(aie::abs(x), 4.2F);
  return aie::sub(aie::max(x, 0.0F), times(t, horner(tail, t)));
}

/// 1 / sqrt(x) for x > 0, relative error 3e-7: the integer first guess and three Newton steps.
inline Floats inverse_root(const Floats& x) {
  const Ints guess = aie::sub(aie::broadcast<int32_t, kLanes>(0x5F3759DF), aie::downshift(x.cast_to<int32_t>(), 1));
  Floats y = guess.cast_to<float>();
  const Floats half = times(x, spread(-0.5F));
  for (int step = 0; step < 3; ++step) y = times(y, fma(times(half, y), y, spread(1.5F)));
  return y;
}

/// 1 / x for x > 0, relative error 3e-7.
inline Floats reciprocal(const Floats& x) {
  const Floats root = inverse_root(x);
  return times(root, root);
}

inline Floats widened(const Halves& x) { return aie::accum<accfloat, kLanes>(x).to_vector<float>(); }

/// float32 to bfloat16 under the core's rounding mode.
inline Halves narrowed(const Floats& x) { return aie::accum<accfloat, kLanes>(x).to_vector<bfloat16>(); }

}  // namespace kernel_math
