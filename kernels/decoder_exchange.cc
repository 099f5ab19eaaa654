// Decoder overlay: one round of the exchange, and what leaves a worker.
//
// Every worker gives a slice of DIM_D / DIM_WORKERS bfloat16, every worker takes all of them. Attention gives its maxima and sums first, then its
// partial output in pieces that all add up; the vocabulary gives the best score first, then the winner its row.
// Limits: decoder_state.hpp. Stack: 1024 B. Rounding: conv_even. Alignment: 32 B for slices, 64 B for the rest.
#include <decoder_state.hpp>

namespace {

using namespace decoder;

struct Score {
  int32_t order, index, maximum, total;
};

void clear(bfloat16* slice) {
  for (unsigned i = 0; i < kSlice; i += kLanes) aie::store_v(slice + i, aie::zeros<bfloat16, kLanes>());
}

void give_rounded(bfloat16* slice, const float* values) {
  for (unsigned i = 0; i < kSlice; i += kLanes) aie::store_v(slice + i, narrowed(aie::load_v<kLanes>(values + i)));
}

void give_softmax(bfloat16* slice, const float* o) {
  clear(slice);
  float* told = reinterpret_cast<float*>(slice);
  for (unsigned head = 0; head < kHeads; ++head) {
    told[head] = o[DIM_D + head];
    told[kHeads + head] = o[DIM_D + 2 * kLanes + head];
  }
}

void give_score(bfloat16* slice, const float* o, const bfloat16* best) {
  clear(slice);
  const int32_t* words = reinterpret_cast<const int32_t*>(best);
  const Floats maxima = aie::load_v<kLanes>(o), top = spread(aie::reduce_max(maxima));
  const Floats shares = times(aie::load_v<kLanes>(o + kLanes), exp2(times(aie::sub(maxima, top), spread(kLog2E))));
  Score* told = reinterpret_cast<Score*>(slice);
  told->order = words[0];
  told->index = words[1];
  told->maximum = top.cast_to<int32_t>()[0];
  told->total = spread(aie::reduce_add(shares)).cast_to<int32_t>()[0];
}

void give(bfloat16* slice, const int32_t* registers, const float* y, const float* o, const bfloat16* best) {
  const auto round = static_cast<unsigned>(registers[rRound]);
  if (registers[rKind] == kProject) {
    for (unsigned i = 0; i < kSlice; i += kLanes) {
      const Floats value = aie::load_v<kLanes>(y + round * kSlice + i);
      aie::store_v(slice + i, narrowed(registers[rTarget] == kHidden ? gelu(value) : value));
    }
  } else if (registers[rKind] == kValues) {
    if (round == 0) give_softmax(slice, o);
    else give_rounded(slice, o + (round - 1) * kSlice);
  } else if (round == 0) {
    give_score(slice, o, best);
  } else if (registers[rWinner] == registers[rWorker]) {
    for (unsigned i = 0; i < kSlice; i += kLanes) aie::store_v(slice + i, aie::load_v<kLanes>(best + 32 + (round - 1) * kSlice + i));
  } else {
    clear(slice);
  }
}

/// This worker's output, scaled to a softmax over the keys of all workers.
void take_softmax(const bfloat16* all, float* o) {
  Floats scale[2];
  for (unsigned part = 0; part * kLanes < kHeads; ++part) {
    Floats top = spread(kLowest), sum = aie::zeros<float, kLanes>();
    for (unsigned worker = 0; worker < DIM_WORKERS; ++worker) {
      top = aie::max(top, aie::load_unaligned_v<kLanes>(reinterpret_cast<const float*>(all + worker * kSlice) + part * kLanes));
    }
    for (unsigned worker = 0; worker < DIM_WORKERS; ++worker) {
      const float* told = reinterpret_cast<const float*>(all + worker * kSlice) + part * kLanes;
      const Floats shrink = exp2(aie::sub(aie::load_unaligned_v<kLanes>(told), top));
      sum = fma(aie::load_unaligned_v<kLanes>(told + kHeads), shrink, sum);
    }
    const Floats own = exp2(aie::sub(aie::load_v<kLanes>(o + DIM_D + part * kLanes), top));
    scale[part] = times(own, reciprocal(aie::max(sum, 1.0e-30F)));
  }
  for (unsigned i = 0; i < DIM_D; i += kLanes) {
    const unsigned head = i / kHead;
    aie::store_v(o + i, times(aie::load_v<kLanes>(o + i), spread(scale[head / kLanes][head % kLanes])));
  }
}

void take_sum(const bfloat16* all, bfloat16* to) {
  for (unsigned i = 0; i < kSlice; i += kLanes) {
    Floats sum = aie::zeros<float, kLanes>();
    for (unsigned worker = 0; worker < DIM_WORKERS; ++worker) sum = aie::add(sum, widened(aie::load_v<kLanes>(all + worker * kSlice + i)));
    aie::store_v(to + i, narrowed(sum));
  }
}

/// The winner of all workers, and the sum for its probability.
void take_score(const bfloat16* all, int32_t* registers, bfloat16* best) {
  int32_t* words = reinterpret_cast<int32_t*>(best);
  Floats maxima = spread(kLowest), totals = aie::zeros<float, kLanes>();
  const auto* first = reinterpret_cast<const Score*>(all);
  words[0] = first->order;
  words[1] = first->index;
  registers[rWinner] = 0;
  for (unsigned worker = 0; worker < DIM_WORKERS; ++worker) {
    const auto* told = reinterpret_cast<const Score*>(all + worker * kSlice);
    maxima.set(aie::broadcast<int32_t, kLanes>(told->maximum).cast_to<float>()[0], worker);
    totals.set(aie::broadcast<int32_t, kLanes>(told->total).cast_to<float>()[0], worker);
    if (told->order > words[0]) {
      words[0] = told->order;
      words[1] = told->index;
      registers[rWinner] = static_cast<int32_t>(worker);
    }
  }
  const Floats top = spread(aie::reduce_max(maxima));
  const Floats shares = times(totals, exp2(times(aie::sub(maxima, top), spread(kLog2E))));
  words[4] = top.cast_to<int32_t>()[0];
  words[5] = spread(aie::reduce_add(shares)).cast_to<int32_t>()[0];
}

}  // namespace

extern "C" {

void decoder_give(bfloat16* slice, const int32_t* registers, const float* y, const float* o, const bfloat16* best) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  give(slice, registers, y, o, best);
}

/// The neighbour's slice and one's own, side by side.
void decoder_give_pair(const bfloat16* neighbour, bfloat16* pair, const int32_t* registers, const float* y, const float* o, const bfloat16* best) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  const auto* words = reinterpret_cast<const int32_t*>(neighbour);  // a slice may hold float32, whose halves are no bfloat16
  for (unsigned i = 0; i < kSlice / 2; i += 8) aie::store_v(reinterpret_cast<int32_t*>(pair) + i, aie::load_v<8>(words + i));
  give(pair + kSlice, registers, y, o, best);
}

void decoder_take(const bfloat16* all, int32_t* registers, float* x, bfloat16* h, bfloat16* qkv, float* o, bfloat16* best) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  const auto round = static_cast<unsigned>(registers[rRound]);
  registers[rRound] += 1;
  if (registers[rKind] == kValues) {
    if (round == 0) take_softmax(all, o);
    else take_sum(all, h + (round - 1) * kSlice);
  } else if (registers[rKind] == kVocabulary) {
    if (round == 0) take_score(all, registers, best);
    else for (unsigned i = 0; i < kSlice; i += kLanes) {
      const auto part = aie::load_v<kLanes>(all + static_cast<unsigned>(registers[rWinner]) * kSlice + i);
      aie::store_v(best + 32 + (round - 1) * kSlice + i, part);
    }
  } else if (registers[rTarget] == kResidual) {
    for (unsigned i = 0; i < DIM_D; i += kLanes) {
      aie::store_v(x + i, aie::add(aie::load_v<kLanes>(x + i), widened(aie::load_v<kLanes>(all + i))));
    }
  } else {
    bfloat16* to = (registers[rTarget] == kHidden ? h : qkv) + round * DIM_D;
    for (unsigned i = 0; i < DIM_D; i += 32) aie::store_v(to + i, aie::load_v<32>(all + i));
  }
}

/// The newest key, then the newest value, on their way to the cache.
void decoder_append(bfloat16* row, int32_t* registers, const bfloat16* qkv) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  registers[rRound] += 1;
  const bfloat16* from = qkv + (registers[rRound] == 4 ? 1 : 2) * DIM_D;
  for (unsigned i = 0; i < DIM_D; i += 32) aie::store_v(row + i, aie::load_v<32>(from + i));
}

/// int32[16]: the token, its score's order, maximum and sum of all scores as float32 bits; -1 for a step without a vocabulary.
void decoder_tell(int32_t* told, const bfloat16* best) {
  const int32_t* words = reinterpret_cast<const int32_t*>(best);
  told[0] = words[1];
  told[1] = words[0];
  told[2] = words[4];
  told[3] = words[5];
  for (unsigned i = 4; i < 16; ++i) told[i] = 0;
}

}  // extern "C"
