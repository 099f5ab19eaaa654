// Vectors and masks, loads and stores, and the element-wise operations of the AIE API that the kernels use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "bfloat16.hpp"

struct accfloat {};  ///< the kind of accumulator that holds float32

namespace aie {

template <typename T>
inline constexpr bool is_floating = std::is_same_v<T, bfloat16> || std::is_same_v<T, float>;

template <typename T, unsigned N>
struct vector {
  static_assert(N * sizeof(T) == 16 || N * sizeof(T) == 32 || N * sizeof(T) == 64 || N * sizeof(T) == 128 || N * sizeof(T) == 256,
                "vectors have 128, 256, 512, 1024 or, as matrix blocks, 2048 bits");
  using value_type = T;
  static constexpr unsigned size() { return N; }

  alignas(N * sizeof(T) < 64 ? N * sizeof(T) : 64) T lane[N];

  T operator[](unsigned index) const { return lane[index]; }
  T& operator[](unsigned index) { return lane[index]; }
  T get(unsigned index) const { return lane[index]; }
  void set(T value, unsigned index) { lane[index] = value; }

  template <unsigned M>
  vector<T, M> extract(unsigned part) const {
    vector<T, M> result;
    std::copy_n(lane + part * M, M, result.lane);
    return result;
  }

  template <unsigned M>
  vector& insert(unsigned part, const vector<T, M>& values) {
    std::copy_n(values.lane, M, lane + part * M);
    return *this;
  }

  /// The same bits as lanes of another type.
  template <typename U>
  vector<U, N * sizeof(T) / sizeof(U)> cast_to() const {
    vector<U, N * sizeof(T) / sizeof(U)> result;
    std::memcpy(result.lane, lane, sizeof lane);
    return result;
  }
};

template <unsigned N>
struct mask {
  bool lane[N];
  bool test(unsigned index) const { return lane[index]; }
};

}  // namespace aie

namespace aie_host {

template <typename T, unsigned N>
void check_access(const T* where) {
  constexpr std::size_t bytes = N * sizeof(T), grain = bytes >= 64 ? 64 : bytes;
  if (reinterpret_cast<std::uintptr_t>(where) % grain != 0) fault(kMisaligned, "misaligned vector access", where);
}

/// Whether any lane still holds the poison of unwritten memory; integers can hold any value and are not checked.
template <typename T, unsigned N>
void check_written(const T* where, const T* lane) {
  if constexpr (aie::is_floating<T>) {
    using Word = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
    Word word[N];
    std::memcpy(word, lane, sizeof word);
    unsigned found = 0;
    for (unsigned i = 0; i < N; ++i) found |= word[i] == static_cast<Word>(kPoison);
    if (found) fault(kUninitialised, "read of memory nobody wrote", where);
  }
}

}  // namespace aie_host

namespace aie {

template <unsigned N, typename T>
vector<std::remove_const_t<T>, N> load_unaligned_v(T* from, unsigned = 1) {
  vector<std::remove_const_t<T>, N> result;
  std::copy_n(from, N, result.lane);
  aie_host::check_written<std::remove_const_t<T>, N>(from, result.lane);
  return result;
}

template <unsigned N, typename T>
vector<std::remove_const_t<T>, N> load_v(T* from) {
  aie_host::check_access<T, N>(from);
  return load_unaligned_v<N>(from);
}

template <typename T, unsigned N>
void store_unaligned_v(T* to, const vector<T, N>& values, unsigned = 1) {
  std::copy_n(values.lane, N, to);
}

template <typename T, unsigned N>
void store_v(T* to, const vector<T, N>& values) {
  aie_host::check_access<T, N>(to);
  store_unaligned_v(to, values);
}

template <typename T, unsigned N>
vector<T, N> broadcast(T value) {
  vector<T, N> result;
  std::fill_n(result.lane, N, value);
  return result;
}

template <typename T, unsigned N>
  requires(!std::is_same_v<T, accfloat>)
vector<T, N> zeros() {
  vector<T, N> result;
  std::memset(result.lane, 0, sizeof result.lane);
  return result;
}

#define AIE_HOST_LANES(expression)                            \
  vector<T, N> result;                                        \
  for (unsigned i = 0; i < N; ++i) result.lane[i] = expression; \
  return result;

template <typename T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return aie_host::flushed(a + b);
  else return static_cast<T>(a + b);
}

template <typename T>
T difference_of(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return aie_host::flushed(a - b);
  else return static_cast<T>(a - b);
}

template <typename T, unsigned N>
vector<T, N> add(const vector<T, N>& a, const vector<T, N>& b) { AIE_HOST_LANES(sum_of<T>(a.lane[i], b.lane[i])) }
template <typename T, unsigned N>
vector<T, N> sub(const vector<T, N>& a, const vector<T, N>& b) { AIE_HOST_LANES(difference_of<T>(a.lane[i], b.lane[i])) }
template <typename T, unsigned N>
vector<T, N> max(const vector<T, N>& a, const vector<T, N>& b) { AIE_HOST_LANES(a.lane[i] < b.lane[i] ? b.lane[i] : a.lane[i]) }
template <typename T, unsigned N>
vector<T, N> max(const vector<T, N>& a, T b) { AIE_HOST_LANES(a.lane[i] < b ? b : a.lane[i]) }
template <typename T, unsigned N>
vector<T, N> min(const vector<T, N>& a, const vector<T, N>& b) { AIE_HOST_LANES(b.lane[i] < a.lane[i] ? b.lane[i] : a.lane[i]) }
template <typename T, unsigned N>
vector<T, N> min(const vector<T, N>& a, T b) { AIE_HOST_LANES(b < a.lane[i] ? b : a.lane[i]) }
template <typename T, unsigned N>
vector<T, N> neg(const vector<T, N>& a) { AIE_HOST_LANES(static_cast<T>(-a.lane[i])) }
template <typename T, unsigned N>
vector<T, N> abs(const vector<T, N>& a) { AIE_HOST_LANES(a.lane[i] < T(0) ? static_cast<T>(-a.lane[i]) : a.lane[i]) }
template <typename T, unsigned N>
vector<T, N> upshift(const vector<T, N>& a, unsigned shift) { AIE_HOST_LANES(static_cast<T>(static_cast<std::make_unsigned_t<T>>(a.lane[i]) << shift)) }
template <typename T, unsigned N>
vector<T, N> downshift(const vector<T, N>& a, unsigned shift) { AIE_HOST_LANES(static_cast<T>(a.lane[i] >> shift)) }

#undef AIE_HOST_LANES

template <typename T, unsigned N>
mask<N> lt(const vector<T, N>& a, const vector<T, N>& b) {
  mask<N> result;
  for (unsigned i = 0; i < N; ++i) result.lane[i] = a.lane[i] < b.lane[i];
  return result;
}
template <typename T, unsigned N>
mask<N> lt(const vector<T, N>& a, T b) { return lt(a, broadcast<T, N>(b)); }
/// Lanes of `b` where the mask is set, else of `a`.
template <typename T, unsigned N>
vector<T, N> select(const vector<T, N>& a, const vector<T, N>& b, const mask<N>& m) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result.lane[i] = m.lane[i] ? b.lane[i] : a.lane[i];
  return result;
}

/// Sum of the lanes, by halving: lane i and lane i + N/2 first.
template <typename T, unsigned N>
T reduce_add(vector<T, N> v) {
  for (unsigned half = N / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; ++i) v.lane[i] = sum_of<T>(v.lane[i], v.lane[i + half]);
  }
  return v.lane[0];
}

template <typename T, unsigned N>
T reduce_max(const vector<T, N>& v) {
  T best = v.lane[0];
  for (unsigned i = 1; i < N; ++i) best = best < v.lane[i] ? v.lane[i] : best;
  return best;
}

template <typename T, unsigned N>
vector<T, N / 2> filter_even(const vector<T, N>& v) {
  vector<T, N / 2> result;
  for (unsigned i = 0; i < N / 2; ++i) result.lane[i] = v.lane[2 * i];
  return result;
}

template <typename T, unsigned N>
vector<T, N / 2> filter_odd(const vector<T, N>& v) {
  vector<T, N / 2> result;
  for (unsigned i = 0; i < N / 2; ++i) result.lane[i] = v.lane[2 * i + 1];
  return result;
}

/// A row-major rows x columns matrix turned over.
template <typename T, unsigned N>
vector<T, N> transpose(const vector<T, N>& v, unsigned rows, unsigned columns) {
  vector<T, N> result;
  for (unsigned i = 0; i < rows; ++i) {
    for (unsigned j = 0; j < columns; ++j) result.lane[j * rows + i] = v.lane[i * columns + j];
  }
  return result;
}

}  // namespace aie
