// Decoder overlay: the next operator of a worker.
//
// Reads the operator's record, sets the loop bounds in `registers`, and makes its input: x normalised (the scale and shift of LayerNorm are folded
// into the weights), or this worker's scores turned into shares of a softmax over its own keys.
// Limits: decoder_state.hpp. Stack: 1024 B. Rounding: conv_even. Alignment: 64 B.
#include <decoder_state.hpp>

namespace {

using namespace decoder;

/// Scores become powers of two below their maximum; the maxima and sums of all heads go behind o, which becomes 0.
void own_softmax(int32_t keys, float* scores, float* o) {
  float* maximum = o + DIM_D;
  float* total = maximum + 2 * kLanes;
  for (unsigned part = 0; part < 2; ++part) {
    aie::store_v(maximum + part * kLanes, spread(kLowest));
    aie::store_v(total + part * kLanes, aie::zeros<float, kLanes>());
  }
  for (unsigned head = 0; head < kHeads; ++head) {
    float* row = scores + head * DIM_KEYS;
    Floats top = spread(kLowest), sum = aie::zeros<float, kLanes>();
    for (int32_t i = 0; i < keys; i += kLanes) top = aie::max(top, aie::load_v<kLanes>(row + i));
    top = spread(aie::reduce_max(top));
    for (int32_t i = 0; i < keys; i += kLanes) {
      const Floats share = exp2(aie::sub(aie::load_v<kLanes>(row + i), top));
      sum = aie::add(sum, share);
      aie::store_v(row + i, share);
    }
    maximum[head] = top[0];
    total[head] = aie::reduce_add(sum);
  }
  for (unsigned i = 0; i < DIM_D; i += kLanes) aie::store_v(o + i, aie::zeros<float, kLanes>());
}

/// Keys of the self cache that this worker has at a position: every DIM_WORKERS-th.
int32_t rows_before(uint32_t position, uint32_t worker) { return position > worker ? static_cast<int32_t>((position - worker + DIM_WORKERS - 1) / DIM_WORKERS) : 0; }

}  // namespace

extern "C" {

/// Before the first operator of a dispatch.
void decoder_start(const int32_t* params, int32_t* registers) {
  for (unsigned i = 0; i < 32; ++i) registers[i] = 0;
  registers[rStep] = params[pStep];
}

void decoder_begin(const int32_t* params, int32_t* registers, const int32_t* records, const float* x, bfloat16* h, float* scores, float* o,
                   bfloat16* best) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  const int32_t operation = registers[rOperator], step = registers[rStep];
  const bool first = operation == 0, last = operation == params[pOperators] - 1;
  const auto* table = reinterpret_cast<const Record*>(records);
  const Record record = first ? Record{kEmbed, 1, 0, kAsIs, 0, DIM_D, {}} : last ? table[kLayerRecords] : table[registers[rRecord]];
  const auto position = static_cast<uint32_t>(params[pPosition] + step), worker = static_cast<uint32_t>(params[pWorker]);
  const bool silent = last && step + 1 < params[pForced];
  const bool self = record.objects < 0;
  registers[rValid] = self ? rows_before(position, worker) : record.objects * DIM_ROWS;
  registers[rOwn] = self && position % DIM_WORKERS == worker;
  registers[rObjects] = self ? (registers[rValid] + DIM_ROWS - 1) / DIM_ROWS : silent ? 0 : record.objects + (first && step < params[pForced]);
  registers[rRounds] = silent ? 0 : record.rounds;
  registers[rAppend] = record.kind == kProject && record.target == kQueryKeyValue && record.rounds == 3 && position % DIM_WORKERS == worker ? 2 : 0;
  registers[rTell] = last;
  registers[rCount] = registers[rRound] = 0;
  registers[rKind] = record.kind;
  registers[rTarget] = record.target;
  registers[rK] = record.k;
  registers[rWorker] = params[pWorker];
  if (!first && !last) registers[rRecord] = registers[rRecord] + 1 == kLayerRecords ? 0 : registers[rRecord] + 1;
  registers[rOperator] = last ? 0 : operation + 1;
  registers[rStep] = last ? step + 1 : step;
  if (record.source == kNormed) {
    const Normal normal(x);
    for (unsigned i = 0; i < DIM_D; i += kLanes) aie::store_v(h + i, narrowed(normal.of(x + i)));
  }
  if (record.kind == kValues) own_softmax((registers[rValid] + registers[rOwn] + kLanes - 1) / kLanes * kLanes, scores, o);
  if (last) {
    int32_t* words = reinterpret_cast<int32_t*>(best);
    words[0] = INT32_MIN;
    words[1] = -1;
    words[2] = (record.objects - 1) * static_cast<int32_t>(DIM_ROWS * worker);
    aie::store_v(o, spread(kLowest));
    aie::store_v(o + kLanes, aie::zeros<float, kLanes>());
  }
}

}  // extern "C"
