// Holds the kernels of the quantizers (encode.hpp). These kernels give the host's bits: sums
// are added in the order of SelectKernels::measure, random numbers depend on the element alone.
//
// fp32, fp16     one launch: reads gradient and residual, writes residual and code
// qsgd           the same with buckets; for a whole tensor three launches, as sign
// sign           measures and packs, chains the sums of blocks of 4096 elements, and with a
//                residual reads and writes it again. One thread runs the chain, some 8 cycles per
//                block: 30 us for 25.6M elements, beside 90 us of memory traffic.
// accumulation   reads the payloads and writes the output once. An element of a payload costs some
//                5 instructions in fp32 and sign, 8 in qsgd (a step for 16 elements; for buckets
//                below 512, for fewer), 13 in fp16. For qsgd of 25.6M elements the expected time,
//                not measured, is 7 us; memory alone needs 5.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/coding/quantizers/encode.hpp"
#include "core/coding/quantizers/scalar_codes.hpp"
#include "core/device/kernel.hpp"
#include "core/device/quads.hpp"
#include "core/payload/accumulate_kernels.hpp"
#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse::gpu {

// The input of an encoder: x = gradient + residual. The residual may be absent.
struct EncodeInput {
  const float* gradient;
  float* residual;  // or null
  std::size_t n;
  std::uint32_t* not_finite;

  // Returns x of an element, and notes the element if x is not finite.
  SPARFUSE_DEVICE float Checked(auto& block, std::size_t i, float gradient_value,
                                float residual_value) const {
    const float x = residual == nullptr ? gradient_value : gradient_value + residual_value;
    if ((BitsOf(x) & ~kSignBit) >= kInfinityKey) {
      block.AtomicMax(not_finite, NotFiniteCode(static_cast<std::uint32_t>(i)));
    }
    return x;
  }
};

// --- fp32 and fp16

template <bool kHalves>
struct EncodeWhole {
  static constexpr const char* kName = kHalves ? "EncodeWhole<fp16>" : "EncodeWhole<fp32>";
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;  // without skew
  EncodeInput input;
  std::byte* out;  // 4-byte aligned

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    Float4 x[kQuadsPerThread];
    Float4 kept[kQuadsPerThread];
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      x[j] = quads.Load(input.gradient, q);
      if (input.residual != nullptr) kept[j] = quads.Load(input.residual, q);
    }
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      std::uint32_t codes[4];
      for (unsigned v = 0; v < 4; ++v) {
        const float value = input.Checked(block, quads.At(q, v), x[j].v[v], kept[j].v[v]);
        x[j].v[v] = value;
        codes[v] = kHalves ? HalfOf(value) : 0;
        kept[j].v[v] = kHalves ? value - FloatOfHalf(codes[v]) : 0.0f;
      }
      if (input.residual != nullptr) quads.Store(input.residual, q, kept[j]);
      if constexpr (kHalves) {
        // A zero half fills the last word if n is odd.
        auto* const words = reinterpret_cast<std::uint32_t*>(out);
        if (quads.At(q, 0) < quads.n) words[2 * std::size_t{q}] = codes[0] | codes[1] << 16;
        if (quads.At(q, 2) < quads.n) words[2 * std::size_t{q} + 1] = codes[2] | codes[3] << 16;
      } else {
        quads.Store(reinterpret_cast<float*>(out), q, x[j]);
      }
    }
  }
};

// --- sums over blocks

// The chains of additions of SelectKernels::measure over a block of kBlock elements: sixteen lanes,
// element i in lane i % 16, single precision within rounds of 256, double precision from there on.
// One thread runs the chain of one lane and round. If a part of the block is shorter than a round,
// `round` is that part.
inline constexpr std::uint32_t kMeasureThreads = 256;
inline constexpr std::uint32_t kLanes = kSumLanes;
inline constexpr std::uint32_t kRound = 256;
inline constexpr std::uint32_t kOwn = kBlock / kMeasureThreads;  // elements of a thread

// Element k of a thread, in its block.
SPARFUSE_DEVICE std::uint32_t OwnElement(unsigned thread, std::uint32_t k) {
  return thread / kLanes * kRound + k * kLanes + thread % kLanes;
}

// Beyond these, measure adds up element after element in double precision.
SPARFUSE_DEVICE bool IsSafe(std::uint32_t max_key) {
  return max_key == 0 || (max_key >= 0x2b800000u && max_key <= 0x5d800000u);
}

// Loads a thread's elements of a block of x, 0 after the end, and writes x to the residual.
SPARFUSE_DEVICE void LoadOwn(auto& block, const EncodeInput& input, std::size_t begin, float* x) {
  float kept[kOwn];
  for (std::uint32_t k = 0; k < kOwn; ++k) {
    const std::size_t i = begin + OwnElement(block.thread(), k);
    x[k] = i < input.n ? input.gradient[i] : 0.0f;
    kept[k] = i < input.n && input.residual != nullptr ? input.residual[i] : 0.0f;
  }
  for (std::uint32_t k = 0; k < kOwn; ++k) {
    const std::size_t i = begin + OwnElement(block.thread(), k);
    if (i >= input.n) continue;
    x[k] = input.Checked(block, i, x[k], kept[k]);
    if (input.residual != nullptr) input.residual[i] = x[k];
  }
}

template <bool kSquares>
SPARFUSE_DEVICE float Term(float x) {
  return kSquares ? x * x : FloatOf(BitsOf(x) & ~kSignBit);
}

// Element after element in double precision.
template <bool kSquares>
SPARFUSE_DEVICE double SumOneByOne(const float* x, std::size_t size) {
  double sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const double value = x[i];
    sum += kSquares ? value * value : (value < 0 ? -value : value);
  }
  return sum;
}

// Computes each block's sum of squares or of magnitudes, its largest key, and the sign words of x.
template <bool kSquares>
struct MeasureBlocks {
  static constexpr int kThreads = kMeasureThreads;
  struct Shared {
    float chains[kMeasureThreads];
    double lanes[kLanes];
  };
  EncodeInput input;
  double* sums;            // [blocks]
  std::uint32_t* largest;  // [blocks]
  std::uint32_t* words;    // or null

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::size_t begin = std::size_t{block.block()} * kBlock;
    float x[kOwn];
    LoadOwn(block, input, begin, x);
    float chain = 0;
    std::uint32_t key = 0;
    for (std::uint32_t k = 0; k < kOwn; ++k) {
      chain += Term<kSquares>(x[k]);
      const std::uint32_t own = BitsOf(x[k]) & ~kSignBit;
      key = own > key ? own : key;
    }
    if (words != nullptr) Pack(block, begin, x);
    shared.chains[block.thread()] = chain;
    key = block.Max(key);  // has barriers
    if (block.thread() < kLanes) {
      double sum = 0;
      for (std::uint32_t round = 0; round < kMeasureThreads / kLanes; ++round) {
        sum += static_cast<double>(shared.chains[round * kLanes + block.thread()]);
      }
      shared.lanes[block.thread()] = sum;
    }
    block.Sync();
    if (block.thread() != 0) return;
    double sum = 0;
    if (IsSafe(key)) {
      for (const double lane : shared.lanes) sum += lane;
    } else {
      const float* const of_block =
          (input.residual == nullptr ? input.gradient : input.residual) + begin;
      sum = SumOneByOne<kSquares>(of_block, input.n - begin < kBlock ? input.n - begin : kBlock);
    }
    sums[block.block()] = sum;
    largest[block.block()] = key;
  }

 private:
  // A warp has sixteen elements of each of two rounds at a time: half of a word of each.
  SPARFUSE_DEVICE void Pack(auto& block, std::size_t begin, const float* x) const {
    for (std::uint32_t k = 0; k < kOwn; k += 2) {
      const std::size_t i = begin + OwnElement(block.thread(), k);
      const std::uint32_t low = block.Ballot(i < input.n && x[k] >= 0.0f);
      const std::uint32_t high = block.Ballot(i + kLanes < input.n && x[k + 1] >= 0.0f);
      const bool second = block.lane() == kLanes;
      if ((block.lane() != 0 && !second) || i >= input.n) continue;
      words[i / 32] = second ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;
    }
  }
};

// One block. Sums the blocks' sums, one after another, and writes the head of the payload: the mean
// of magnitudes, or the norm from squares.
template <bool kSquares>
struct ChainBlocks {
  static constexpr int kThreads = 256;
  struct Shared {
    double sums[kThreads];
  };
  const double* sums;
  const std::uint32_t* largest;
  std::size_t size;
  std::size_t n;
  float* head;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    double sum = 0;
    std::uint32_t key = 0;
    for (std::size_t begin = 0; begin < size; begin += kThreads) {
      const std::size_t i = begin + block.thread();
      shared.sums[block.thread()] = i < size ? sums[i] : 0;
      if (i < size && largest[i] > key) key = largest[i];
      block.Sync();
      if (block.thread() == 0) {
        for (const double of_block : shared.sums) sum += of_block;
      }
      block.Sync();
    }
    key = block.Max(key);
    if (block.thread() != 0) return;
    *head = kSquares ? QsgdNorm(sum, key) : static_cast<float>(sum / static_cast<double>(n));
  }
};

struct KeepBesideSigns {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  float* residual;
  const float* scale;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const float magnitude = *scale;
    Float4 x[kQuadsPerThread];
    for (int j = 0; j < kQuadsPerThread; ++j) {
      x[j] = quads.Load(residual, ElementwiseQuad(block, j));
    }
    for (int j = 0; j < kQuadsPerThread; ++j) {
      for (float& value : x[j].v) value -= value >= 0.0f ? magnitude : -magnitude;
      quads.Store(residual, ElementwiseQuad(block, j), x[j]);
    }
  }
};

// --- qsgd

struct LevelCoding {
  float levels;
  std::uint64_t key;  // key of the RandomStream
  std::int8_t* codes;
  float* residual;  // or null

  // If the step underflows, nothing is sent.
  SPARFUSE_DEVICE void Encode(std::size_t i, float value, float step) const {
    std::int32_t code = 0;
    if (step != 0.0f) {
      const float y = FloatOf(BitsOf(value) & ~kSignBit) / step;
      const float bounded = y < levels ? y : levels;  // levels for a NaN
      const auto whole = static_cast<std::int32_t>(bounded);
      const float fraction = bounded - static_cast<float>(whole);
      const std::uint64_t number = RandomAt(key, i / 2);
      const auto draw = static_cast<std::uint32_t>(i % 2 == 0 ? number : number >> 32);
      const float uniform = static_cast<float>(static_cast<std::int32_t>(draw >> 8)) * 0x1p-24f;
      const std::int32_t level = whole + static_cast<std::int32_t>(uniform < fraction);
      code = value < 0.0f ? -level : level;
    }
    codes[i] = static_cast<std::int8_t>(code);
    if (residual != nullptr) residual[i] = value - static_cast<float>(code) * step;
  }

  // Fills the last word of codes with zeros.
  SPARFUSE_DEVICE void Pad(std::size_t n) const {
    for (std::size_t i = n; i % 4 != 0; ++i) codes[i] = 0;
  }
};

// Buckets of at most kBlock elements, a power of two from 64.
struct EncodeBuckets {
  static constexpr int kThreads = kMeasureThreads;
  static constexpr std::uint32_t kLeast = 64;
  static constexpr std::uint32_t kMostChains = kBlock / kLeast * kLanes;  // of one round each
  struct Shared {
    double lanes[kMostChains];
    float chains[kMostChains];
    std::uint32_t keys[kMostChains];
    float steps[kBlock / kLeast];
  };
  EncodeInput input;
  LevelCoding coding;
  std::uint32_t bucket;
  float* norms;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::size_t begin = std::size_t{block.block()} * kBlock;
    float x[kOwn];
    LoadOwn(block, input, begin, x);
    // A round is as long as a bucket if that is shorter; each thread then has kRound / round
    // chains.
    const std::uint32_t round = bucket < kRound ? bucket : kRound;
    float chain = 0;
    std::uint32_t key = 0;
    for (std::uint32_t k = 0; k < kOwn; ++k) {
      chain += x[k] * x[k];
      const std::uint32_t own = BitsOf(x[k]) & ~kSignBit;
      key = own > key ? own : key;
      if ((k + 1) * kLanes % round != 0) continue;
      const std::uint32_t at =
          OwnElement(block.thread(), k) / round * kLanes + block.thread() % kLanes;
      shared.chains[at] = chain;
      shared.keys[at] = key;
      chain = 0;
      key = 0;
    }
    block.Sync();
    const std::uint32_t buckets = kBlock / bucket;
    const std::uint32_t rounds = bucket / round;  // of a bucket
    for (std::uint32_t t = block.thread(); t < buckets * kLanes; t += kThreads) {
      double sum = 0;
      const std::uint32_t first = t / kLanes * rounds * kLanes + t % kLanes;
      for (std::uint32_t r = 0; r < rounds; ++r) {
        sum += static_cast<double>(shared.chains[first + r * kLanes]);
      }
      shared.lanes[t] = sum;
    }
    block.Sync();
    const std::size_t at = begin + std::size_t{block.thread()} * bucket;
    if (block.thread() < buckets && at < input.n) {
      shared.steps[block.thread()] = MeasureBucket(shared, block.thread(), at, rounds);
    }
    block.Sync();
    for (std::uint32_t k = 0; k < kOwn; ++k) {
      const std::uint32_t i = OwnElement(block.thread(), k);
      if (begin + i < input.n) coding.Encode(begin + i, x[k], shared.steps[i / bucket]);
    }
    if (block.block() == 0 && block.thread() == 0) coding.Pad(input.n);
  }

 private:
  SPARFUSE_DEVICE float MeasureBucket(const Shared& shared, std::uint32_t b, std::size_t at,
                                      std::uint32_t rounds) const {
    double sum = 0;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum += shared.lanes[b * kLanes + lane];
    std::uint32_t key = 0;
    for (std::uint32_t c = b * rounds * kLanes; c < (b + 1) * rounds * kLanes; ++c) {
      key = shared.keys[c] > key ? shared.keys[c] : key;
    }
    if (!IsSafe(key)) {
      const float* const x = input.residual == nullptr ? input.gradient : input.residual;
      sum = SumOneByOne<true>(x + at, input.n - at < bucket ? input.n - at : bucket);
    }
    norms[at / bucket] = QsgdNorm(sum, key);
    return QsgdStep(norms[at / bucket], coding.levels);
  }
};

// Encodes x, which has been measured as one bucket.
struct EncodeLevels {
  static constexpr int kThreads = kElementwiseThreads;
  static constexpr std::uint32_t kPerThread = 8;
  const float* x;
  std::size_t n;
  LevelCoding coding;
  const float* norm;

  static std::size_t Blocks(std::size_t n) {
    return (n + kPerThread * kThreads - 1) / (kPerThread * kThreads);
  }

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const float step = QsgdStep(*norm, coding.levels);
    const std::size_t first = std::size_t{block.block()} * kPerThread * kThreads + block.thread();
    float values[kPerThread];
    for (std::uint32_t j = 0; j < kPerThread; ++j) {
      const std::size_t i = first + std::size_t{j} * kThreads;
      values[j] = i < n ? x[i] : 0.0f;
    }
    for (std::uint32_t j = 0; j < kPerThread; ++j) {
      const std::size_t i = first + std::size_t{j} * kThreads;
      if (i < n) coding.Encode(i, values[j], step);
    }
    if (block.block() == 0 && block.thread() == 0) coding.Pad(n);
  }
};

// --- accumulation

inline constexpr std::uint32_t kMaxEncoded = 32;  // payloads of one launch

SPARFUSE_DEVICE bool IsScale(float scale) { return BitsOf(scale) < kInfinityKey; }

// Decoders of payloads. A word has the codes of kPerWord elements. Word returns word w, Head the
// data that the elements of its bucket share. Corrupt data clear *good.
struct DecodeWhole {
  static constexpr std::uint32_t bucket = 0;  // one

  SPARFUSE_DEVICE std::uint32_t Word(const std::byte* payload, std::size_t w) const {
    return reinterpret_cast<const std::uint32_t*>(payload)[w];
  }
  SPARFUSE_DEVICE float Head(const std::byte* /*payload*/, std::size_t /*w*/,
                             bool* /*good*/) const {
    return 0;
  }
};

struct DecodeFp32 : DecodeWhole {
  static constexpr std::uint32_t kPerWord = 1;

  SPARFUSE_DEVICE float Element(std::uint32_t word, unsigned /*v*/, float /*head*/,
                                bool* good) const {
    *good &= (word & ~kSignBit) < kInfinityKey;
    return FloatOf(word);
  }
};

struct DecodeFp16 : DecodeWhole {
  static constexpr std::uint32_t kPerWord = 2;

  SPARFUSE_DEVICE float Element(std::uint32_t word, unsigned v, float /*head*/, bool* good) const {
    const std::uint32_t code = word >> 16 * v & 0xffffu;
    *good &= (code & 0x7fffu) < kHalfInfinity;
    return FloatOfHalf(code);
  }
};

struct DecodeQsgd {
  static constexpr std::uint32_t kPerWord = 4;
  std::size_t codes_at;  // bytes of the norms
  std::uint32_t bucket;  // a power of two from 64, or 0
  int bucket_bits;       // its logarithm; of 0, 63
  float levels;

  SPARFUSE_DEVICE std::uint32_t Word(const std::byte* payload, std::size_t w) const {
    return reinterpret_cast<const std::uint32_t*>(payload + codes_at)[w];
  }
  SPARFUSE_DEVICE float Head(const std::byte* payload, std::size_t w, bool* good) const {
    const float norm = reinterpret_cast<const float*>(payload)[w * kPerWord >> bucket_bits];
    *good &= IsScale(norm);
    return QsgdStep(norm, levels);
  }
  SPARFUSE_DEVICE float Element(std::uint32_t word, unsigned v, float head, bool* /*good*/) const {
    return static_cast<float>(static_cast<std::int8_t>(word >> 8 * v)) * head;
  }
};

struct DecodeSign {
  static constexpr std::uint32_t kPerWord = 8;  // of the 32
  static constexpr std::uint32_t bucket = 0;

  SPARFUSE_DEVICE std::uint32_t Word(const std::byte* payload, std::size_t w) const {
    const std::size_t i = w * kPerWord;
    return reinterpret_cast<const std::uint32_t*>(payload)[1 + i / 32] >> i % 32;
  }
  SPARFUSE_DEVICE float Head(const std::byte* payload, std::size_t /*w*/, bool* good) const {
    const float scale = *reinterpret_cast<const float*>(payload);
    *good &= IsScale(scale);
    return scale;
  }
  SPARFUSE_DEVICE float Element(std::uint32_t word, unsigned v, float head, bool* /*good*/) const {
    return FloatOf(BitsOf(head) ^ (~word >> v) << 31);
  }
};

// A warp takes neighbouring words, and writes its sums in the order of the elements. Payloads and
// output need no more than 4-byte alignment.
template <class Decode>
struct AccumulateEncoded {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerThread = 16;
  static constexpr std::uint32_t kPerWarp = kWarp * kPerThread;
  static constexpr std::uint32_t kPerBlock = kThreads * kPerThread;
  static constexpr std::uint32_t kPerWord = Decode::kPerWord;
  static constexpr std::uint32_t kWords = kPerThread / kPerWord;  // of a thread
  struct Shared {
    alignas(16) float sums[kPerBlock];
  };
  Decode decode;
  const std::byte* payloads[kMaxEncoded];
  std::uint32_t size;
  std::uint32_t number;  // of the first payload, for faults
  std::size_t n;
  float scale;
  bool add;  // to the content of `out`: not the first payloads
  float* out;
  std::uint64_t* fault;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::size_t begin =
        std::size_t{block.block()} * kPerBlock + std::size_t{block.warp()} * kPerWarp;
    float* const of_warp = shared.sums + block.warp() * kPerWarp;
    const std::uint32_t bad = begin + kPerWarp <= n ? Sum<true>(block, begin, of_warp)
                                                    : Sum<false>(block, begin, of_warp);
    block.SyncWarp();
    for (std::uint32_t k = block.lane(); k < kPerWarp; k += kWarp) {
      if (begin + k < n) out[begin + k] = of_warp[k];
    }
    if (bad < size) Report(block, bad, begin);
  }

 private:
  // Sums the elements of a warp, from `begin` on. Returns the first payload with a corrupt element,
  // or `size`. kWhole: all elements are below n.
  template <bool kWhole, class Block>
  SPARFUSE_DEVICE std::uint32_t Sum(const Block& block, std::size_t begin, float* of_warp) const {
    float sums[kWords][kPerWord] = {};
    const std::size_t first = begin / kPerWord + block.lane();
    const std::size_t last = (n - 1) / kPerWord;
    std::size_t places[kWords];
    for (std::uint32_t j = 0; j < kWords; ++j) {
      const std::size_t w = first + j * kWarp;
      places[j] = kWhole || w < last ? w : last;
      if (!add) continue;
      for (unsigned v = 0; v < kPerWord; ++v) {
        if (kWhole || w * kPerWord + v < n) sums[j][v] = out[w * kPerWord + v];
      }
    }
    std::uint32_t bad = size;
    for (std::uint32_t p = 0; p < size; ++p) {
      std::uint32_t words[kWords];
      for (std::uint32_t j = 0; j < kWords; ++j) words[j] = decode.Word(payloads[p], places[j]);
      float head = 0;
      bool good = true;
      for (std::uint32_t j = 0; j < kWords; ++j) {
        // A bucket may begin here.
        if ((j * kWarp * kPerWord & (decode.bucket - 1)) == 0) {
          head = decode.Head(payloads[p], places[j], &good);
        }
        for (unsigned v = 0; v < kPerWord; ++v) {
          sums[j][v] += decode.Element(words[j], v, head, &good);
        }
      }
      bad = !good && p < bad ? p : bad;
    }
    for (std::uint32_t j = 0; j < kWords; ++j) {
      float* const to = of_warp + (j * kWarp + block.lane()) * kPerWord;
      for (unsigned v = 0; v < kPerWord; ++v) to[v] = sums[j][v] * scale;
    }
    return bad;
  }

  // Reports the first corrupt element from `begin` on, of payload p or the next payload with one.
  // The padding of a last word is no element.
  SPARFUSE_DEVICE void Report(auto& block, std::uint32_t p, std::size_t begin) const {
    for (; p < size; ++p) {
      for (std::size_t i = begin; i < n; ++i) {
        const std::size_t w = i / kPerWord;
        bool good = true;
        const float head = decode.Head(payloads[p], w, &good);
        decode.Element(decode.Word(payloads[p], w), i % kPerWord, head, &good);
        if (good) continue;
        block.AtomicMax(fault, PayloadFaultCode(number + p, static_cast<std::uint32_t>(i)));
        return;
      }
    }
  }
};

}  // namespace sparfuse::gpu
