// Decoder overlay: one tape object of the operator at hand.
//
// Project: y[i] = rows . h + bias. Scores: scores[head, i] = key . query + bias, this worker's keys only. Values: o += share of each key times its
// value. Vocabulary: the best row so far and the sum for its probability. Embed: x = the token's row + its position's.
// Limits: decoder_state.hpp. Stack: 1024 B. Rounding: conv_even. Alignment: 64 B.
#include <decoder_state.hpp>

namespace {

using namespace decoder;

void project(const bfloat16* object, int32_t* registers, const bfloat16* h, float* y) {
  const auto k = static_cast<unsigned>(registers[rK]);
  const unsigned rows = DIM_ROWS * DIM_D / k;
  const float* bias = bias_of(object);
  for (unsigned row = 0; row < rows; ++row) {
    const Floats sum = aie::add(spread(dot(object + row * k, h, k)), spread(bias[row]));
    y[registers[rCount] + static_cast<int32_t>(row)] = sum[0];
  }
  registers[rCount] += static_cast<int32_t>(rows);
}

void score(const bfloat16* key, Floats bias, const bfloat16* query, float* scores, int32_t index) {
  for (unsigned head = 0; head < kHeads; ++head) {
    const Floats sum = aie::add(spread(dot(key + head * kHead, query + head * kHead, kHead)), bias);
    scores[static_cast<int32_t>(head * DIM_KEYS) + index] = sum[0];
  }
}

void scores_of(const bfloat16* object, int32_t* registers, const bfloat16* query, float* scores) {
  const float* bias = bias_of(object);
  for (unsigned row = 0; row < DIM_ROWS; ++row) {
    const int32_t index = registers[rCount] + static_cast<int32_t>(row);
    score(object + row * DIM_D, spread(index < registers[rValid] ? bias[row] : kLowest), query, scores, index);
  }
  registers[rCount] += DIM_ROWS;
}

void add_value(const bfloat16* value, const float* scores, int32_t index, float* o) {
  for (unsigned head = 0; head < kHeads; ++head) {
    const bfloat16 share = narrowed(spread(scores[static_cast<int32_t>(head * DIM_KEYS) + index]))[0];
    for (unsigned i = head * kHead; i < (head + 1) * kHead; i += 32) {
      const aie::accum<accfloat, 32> sum(aie::load_v<32>(o + i));
      aie::store_v(o + i, aie::mac(sum, aie::load_v<32>(value + i), share).template to_vector<float>());
    }
  }
}

void values_of(const bfloat16* object, int32_t* registers, const float* scores, float* o) {
  for (unsigned row = 0; row < DIM_ROWS && registers[rCount] < registers[rValid]; ++row) {
    add_value(object + row * DIM_D, scores, registers[rCount], o);
    registers[rCount] += 1;
  }
}

/// Bits of a float32, ordered like the numbers.
int32_t order_of(int32_t bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }

/// The first object of the vocabulary has scale and shift of the last LayerNorm: folded into the rows, they would be in the next embedding too.
void last_norm(const bfloat16* object, const float* x, bfloat16* h) {
  const float* affine = reinterpret_cast<const float*>(object);
  const Normal normal(x);
  for (unsigned i = 0; i < DIM_D; i += kLanes) {
    aie::store_v(h + i, narrowed(fma(normal.of(x + i), aie::load_v<kLanes>(affine + i), aie::load_v<kLanes>(affine + DIM_D + i))));
  }
}

void vocabulary(const bfloat16* object, int32_t* registers, const float* x, bfloat16* h, float* o, bfloat16* best) {
  registers[rCount] += 1;
  if (registers[rCount] == 1) return last_norm(object, x, h);
  int32_t* words = reinterpret_cast<int32_t*>(best);
  auto logits = spread(kLowest);
  for (unsigned row = 0; row < DIM_ROWS; ++row) logits.set(dot(object + row * DIM_D, h, DIM_D), row);
  logits = aie::max(aie::add(logits, aie::load_v<kLanes>(bias_of(object))), kLowest);
  const Floats before = aie::load_v<kLanes>(o), now = aie::max(before, logits);
  const Floats kept = times(aie::load_v<kLanes>(o + kLanes), exp2(times(aie::sub(before, now), spread(kLog2E))));
  aie::store_v(o, now);
  aie::store_v(o + kLanes, aie::add(kept, exp2(times(aie::sub(logits, now), spread(kLog2E)))));
  const auto bits = logits.cast_to<int32_t>();
  for (unsigned row = 0; row < DIM_ROWS; ++row) {
    const int32_t order = order_of(bits[row]);
    if (order <= words[0]) continue;
    words[0] = order;
    words[1] = words[2] + static_cast<int32_t>(row);
    for (unsigned j = 0; j < DIM_D; j += 32) aie::store_v(best + 32 + j, aie::load_v<32>(object + row * DIM_D + j));
  }
  words[2] += DIM_ROWS;
}

/// The last object of a step's embedding is its position; one before it is a token's row that the host chose.
void embed(const bfloat16* object, int32_t* registers, float* x, bfloat16* best) {
  registers[rCount] += 1;
  if (registers[rCount] < registers[rObjects]) {
    for (unsigned j = 0; j < DIM_D; j += 32) aie::store_v(best + 32 + j, aie::load_v<32>(object + j));
    return;
  }
  for (unsigned i = 0; i < DIM_D; i += kLanes) {
    aie::store_v(x + i, aie::add(widened(aie::load_v<kLanes>(best + 32 + i)), widened(aie::load_v<kLanes>(object + i))));
  }
}

}  // namespace

extern "C" {

void decoder_work(const bfloat16* object, int32_t* registers, float* x, bfloat16* h, float* y, const bfloat16* qkv, float* scores, float* o,
                  bfloat16* best) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  switch (registers[rKind]) {
    case kEmbed: embed(object, registers, x, best); break;
    case kProject: project(object, registers, h, y); break;
    case kScores: scores_of(object, registers, qkv, scores); break;
    case kValues: values_of(object, registers, scores, o); break;
    case kVocabulary: vocabulary(object, registers, x, h, o, best); break;
  }
}

/// After the last object: the newest key and value, which are not in the cache yet, and scores of no key up to a whole vector.
void decoder_end(const int32_t* registers, const bfloat16* qkv, float* scores, float* o) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  const int32_t valid = registers[rValid];
  if (registers[rKind] == kScores) {
    if (registers[rOwn]) score(qkv + DIM_D, spread(0.0F), qkv, scores, valid);
    const int32_t keys = valid + registers[rOwn];
    for (unsigned head = 0; head < kHeads; ++head) {
      for (int32_t i = keys; i % static_cast<int32_t>(kLanes) != 0; ++i) scores[static_cast<int32_t>(head * DIM_KEYS) + i] = kLowest;
    }
  }
  if (registers[rKind] == kValues && registers[rOwn]) add_value(qkv + 2 * DIM_D, scores, valid, o);
}

}  // extern "C"
