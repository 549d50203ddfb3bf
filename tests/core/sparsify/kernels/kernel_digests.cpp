// Prints a digest of the results of the selection kernels on made-up data, one line an instruction
// set of the machine: "avx2 0123456789abcdef". The lines of any two machines must be equal except
// for the names. Needs no test library, so that it builds quickly for another processor.
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/cpu.hpp"
#include "core/base/fnv.hpp"
#include "core/sparsify/adtopk/fibre_kernels.hpp"
#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {
namespace {

class Digest {
 public:
  template <class T>
  void Add(const T& value) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof bytes);
    for (const unsigned char byte : bytes) hash_ = FnvAdd(hash_, byte);
  }
  template <class T>
  void Add(const T* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) Add(values[i]);
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = kFnvBegin;
};

float FromBits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// The data of `kind`: normal numbers; all equal; zeros of both signs with few others; denormals;
// magnitudes one unit in the last place apart; one huge among small ones; steps of a staircase.
std::vector<float> Data(std::size_t n, int kind, std::mt19937& random) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float unit = static_cast<float>(random() % 2000001) / 1e6f - 1;
    const std::uint32_t sign = random() % 2 << 31;
    switch (kind) {
      case 0:
        x[i] = unit * unit * unit;
        break;
      case 1:
        x[i] = FromBits(0x3f000000u | sign);
        break;
      case 2:
        x[i] = random() % 100 == 0 ? unit : FromBits(sign);
        break;
      case 3:
        x[i] = FromBits(random() % 0x7fffff | sign);
        break;
      case 4:
        x[i] = FromBits((0x3f000000u + static_cast<std::uint32_t>(i * 7 % (n + 1))) | sign);
        break;
      case 5:
        x[i] = i == n / 2 ? 1e38f : 1e-20f * unit;
        break;
      default:
        x[i] = static_cast<float>(i / 100);
        break;
    }
  }
  return x;
}
constexpr int kKinds = 7;

constexpr std::uint32_t kNoBound = 0xffffffffu;  // above every key

void AddSelection(const SelectKernels& kernels, const std::vector<float>& gradient,
                  const std::vector<float>& carried, std::uint32_t lo, Digest& digest) {
  const std::size_t n = gradient.size();
  for (const bool feedback : {false, true}) {
    std::vector<float> residual = carried;
    std::vector<std::uint16_t> offsets(kOffsetRoom);
    std::vector<std::uint16_t> offsets_of_none(kOffsetRoom);
    float* const sum = feedback ? residual.data() : nullptr;
    const std::size_t count = kernels.scan(gradient.data(), sum, sum, n, lo, offsets.data());
    if (feedback) {
      std::vector<float> apart(n);
      kernels.scan(gradient.data(), carried.data(), apart.data(), n, lo, offsets.data());
      digest.Add(apart.data(), n);
      for (const std::uint32_t zero_from : {lo, lo + 50, kNoBound}) {
        struct alignas(64) Block {
          float at[kBlock];
        };
        const auto to = std::make_unique<Block>();
        const std::size_t found = kernels.scan_apart(gradient.data(), carried.data(), n, lo,
                                                     zero_from, offsets.data(), to->at);
        digest.Add(offsets.data(), found);
        digest.Add(to->at, n);
        std::vector<std::uint32_t> found_indices(found);
        std::vector<float> sums(found);
        digest.Add(kernels.gather_sums(gradient.data(), carried.data(), offsets.data(), found, 5,
                                       found_indices.data(), sums.data()));
        digest.Add(found_indices.data(), found);
        digest.Add(sums.data(), found);
      }
    }
    digest.Add(offsets.data(), count);
    digest.Add(residual.data(), n);
    std::vector<float> x = feedback ? residual : gradient;
    std::vector<std::uint32_t> indices(count), out_indices(count);
    std::vector<float> values(count), out_values(count);
    digest.Add(kernels.gather(x.data(), offsets.data(), count, 5, indices.data(), values.data()));
    digest.Add(indices.data(), count);
    digest.Add(values.data(), count);
    for (const std::size_t most : {count, count / 2}) {
      const std::size_t emitted = kernels.emit(indices.data(), values.data(), count, lo + 100, most,
                                               out_indices.data(), out_values.data());
      digest.Add(out_indices.data(), emitted);
      digest.Add(out_values.data(), emitted);
    }
    std::vector<std::uint32_t> inside(count);
    std::size_t above = 0;
    digest.Add(inside.data(),
               kernels.keys_in_range(values.data(), count, lo, lo + 5000, inside.data(), &above));
    digest.Add(above);
    digest.Add(inside.data(),
               kernels.keys_in_range(values.data(), count, lo, kNoBound, inside.data(), &above));
    digest.Add(kernels.emit(indices.data(), values.data(), count, kNoBound, count,
                            out_indices.data(), out_values.data()));
    digest.Add(kernels.scan(x.data(), nullptr, nullptr, n, kNoBound, offsets_of_none.data()));
    kernels.clear(offsets.data(), values.data(), count, lo + 50, x.data());
    digest.Add(x.data(), n);
    std::vector<float> wide(n + 5);
    kernels.put(indices.data(), values.data(), count, lo, lo + 9999, false, wide.data());
    digest.Add(wide.data(), wide.size());
    kernels.put(indices.data(), values.data(), count, lo + 50, kNoBound, false, wide.data());
    digest.Add(wide.data(), wide.size());
  }
  std::vector<float> residual = carried;
  digest.Add(kernels.add(gradient.data(), residual.data(), n));
  digest.Add(residual.data(), n);
  std::vector<std::uint32_t> keys(n);
  digest.Add(kernels.make_keys(gradient.data(), n, keys.data()));
  digest.Add(kernels.count_at_least(keys.data(), n, lo));
  digest.Add(kernels.count_at_least(keys.data(), n, kNoBound));
  BlockSums sums{};
  for (unsigned wanted = 1; wanted < 8; ++wanted) {
    kernels.measure(gradient.data(), n, wanted, &sums);
    if ((wanted & kWantSum) != 0) digest.Add(sums.sum);
    if ((wanted & kWantAbs) != 0) digest.Add(sums.sum_abs);
    if ((wanted & kWantSquares) != 0) digest.Add(sums.sum_squares);
    digest.Add(sums.max_key);
  }
  TailSums tail{};
  kernels.measure_tail(gradient.data(), n, lo, sums.max_key, true, &tail);
  digest.Add(tail.count);
  digest.Add(tail.sum_abs);
  digest.Add(tail.sum_squares);
  double products[kSumLanes];
  std::int64_t exponent = 0;
  digest.Add(kernels.multiply_mantissas(gradient.data(), n, products, &exponent));
  digest.Add(products, kSumLanes);
  digest.Add(exponent);
  std::uint32_t bounds[kCountedKeys];
  std::size_t counts[kCountedKeys] = {};
  for (std::size_t j = 0; j < kCountedKeys; ++j) bounds[j] = static_cast<std::uint32_t>(j) * lo / 5;
  bounds[kCountedKeys - 1] = kNoBound;
  kernels.count_reaching(gradient.data(), n, bounds, counts);
  digest.Add(counts, kCountedKeys);
}

void AddFibres(const FibreKernels& kernels, const std::vector<float>& gradient,
               const std::vector<float>& carried, std::uint32_t lo, std::size_t period,
               Digest& digest) {
  const std::size_t n = gradient.size();
  std::vector<std::uint32_t> bounds(period + kScanLanes - 1);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    bounds[i] = lo + 1000 * static_cast<std::uint32_t>(i % period);
  }
  for (const bool feedback : {false, true}) {
    std::vector<float> residual = carried;
    std::vector<std::uint32_t> indices(n + 16);
    std::vector<float> values(n + 16);
    std::uint32_t largest = 0;
    const std::size_t count =
        kernels.scan({gradient.data(), feedback ? residual.data() : nullptr, n, bounds.data(),
                      period, 0, 3, indices.data(), values.data()},
                     &largest);
    digest.Add(indices.data(), count);
    digest.Add(values.data(), count);
    digest.Add(residual.data(), n);
    digest.Add(largest);
  }
  const std::size_t ranked = n < kRankRoom ? n : kRankRoom;
  for (std::size_t k = 1; k <= ranked; k += 7) {
    std::size_t reach = 0;
    digest.Add(kernels.rank(gradient.data(), ranked, k, &reach));
    digest.Add(reach);
  }
}

std::uint64_t DigestOf(Isa isa) {
  Digest digest;
  std::mt19937 random(11);
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const std::size_t n : {0u, 1u, 15u, 16u, 63u, 64u, 65u, 257u, 1000u, 4095u, 4096u}) {
      const std::vector<float> gradient = Data(n, kind, random);
      const std::vector<float> residual = Data(n, (kind + 3) % kKinds, random);
      for (const std::uint32_t lo : {0u, 1u, 0x00400000u, 0x3e000000u, 0x3f000000u, kInfinityKey}) {
        AddSelection(SelectKernelsFor(isa), gradient, residual, lo, digest);
        AddFibres(FibreKernelsFor(isa), gradient, residual, lo, 1 + n % 70, digest);
      }
    }
  }
  return digest.value();
}

}  // namespace
}  // namespace sparfuse

int main() {
  for (const sparfuse::Isa isa : sparfuse::SupportedIsas()) {
    std::printf("%s %016llx\n", std::string(sparfuse::IsaName(isa)).c_str(),
                static_cast<unsigned long long>(sparfuse::DigestOf(isa)));
  }
}
