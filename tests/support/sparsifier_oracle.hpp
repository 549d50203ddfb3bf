// Holds the common parts of the sparsifiers' tests: test data by name, one selection with its
// memory, and top-k by its definition.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/cpu.hpp"
#include "core/device/device.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "tests/support/bits.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {

// Large enough for several threads, and not a multiple of any block size.
inline constexpr std::size_t kLargeShape = (std::size_t{1} << (kSanitized ? 18 : 20)) + 7;

// Whether to run also the slow tests that seldom find more: published forms, whose kernels are the
// canonical ones; each instruction set; each sparsifier on the emulated device. scripts/test --ci
// does.
inline bool TestsEverything() {
  static const bool everything = std::getenv("SPARFUSE_TEST_EVERYTHING") != nullptr;
  return everything && !kThreadSanitized;
}

// Whether the name is a published implementation's form, such as "dgc@saf".
inline bool IsPublished(std::string_view name) { return name.find('@') != std::string_view::npos; }

inline std::vector<std::string> SparsifierNames() {
  std::vector<std::string> names;
  for (const SparsifierDescriptor& descriptor : Sparsifiers()) {
    if (IsPublished(descriptor.name) && !TestsEverything()) continue;
    names.emplace_back(descriptor.name);
  }
  return names;
}

// The subjects of the laws: core's sparsifiers, unless the program sets others before it starts
// googletest.
struct Subjects {
  bool chosen = false;  // set by the program: each is tested on every device
  std::vector<std::string> names = SparsifierNames();
  // Finds the descriptor of one of `names`, or of a made sparsifier's own name.
  std::function<const SparsifierDescriptor&(const std::string&)> find = FindSparsifier;
  std::vector<Isa> isas = SupportedIsas();  // instruction sets that their kernels can run on
  bool on_host = true;
  // The devices besides the host. Tests of an absent device are skipped.
  std::vector<DeviceKind> devices = {DeviceKind::kEmulated, DeviceKind::kCuda};
};

inline Subjects& UnderTest() {
  static Subjects subjects;
  return subjects;
}

// A name that googletest accepts.
inline std::string CaseName(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

inline const std::vector<std::string>& DataNames() {
  static const std::vector<std::string> names = {
      "gaussian",   "laplace", "layers",   "zeros",       "equal",     "spike",
      "few-values", "sparse",  "denormal", "alternating", "ascending", "clustered"};
  return names;
}

// Adds data that is made to mislead a sample or the threshold of the step before.
inline const std::vector<std::string>& AdversarialNames() {
  static const std::vector<std::string> names = {"one-ulp-apart", "staircase", "outlier",
                                                 "both-zeros"};
  return names;
}

// n elements of the data set `name`, drawn from `seed`. `draw(i)` is one element; the data set is
// chosen once, not for each of a million elements.
inline std::vector<float> DrawData(const std::string& name, std::size_t n, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::vector<float> x(n, 0.0f);
  const auto fill = [&x](const auto& draw) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = draw(i);
  };
  if (name == "gaussian") {
    fill([&](std::size_t) { return normal(random); });
  } else if (name == "laplace") {
    fill([&](std::size_t) {
      const float u = uniform(random) - 0.5f;
      return -std::copysign(std::log1p(-2 * std::abs(u) + 1e-7f), u);
    });
  } else if (name == "layers") {  // neighbouring regions of very different scale
    fill([&](std::size_t i) {
      return normal(random) * std::ldexp(1.0f, -3 * static_cast<int>(i * 8 / n));
    });
  } else if (name == "equal") {
    fill([](std::size_t) { return 0.25f; });
  } else if (name == "spike") {
    fill([n](std::size_t i) { return i == n / 2 ? 3.0f : 0.0f; });
  } else if (name == "few-values") {
    fill([&](std::size_t) { return std::floor(normal(random) * 2) * 0.5f; });
  } else if (name == "sparse") {
    fill([&](std::size_t) { return uniform(random) < 0.01f ? normal(random) : 0.0f; });
  } else if (name == "denormal") {
    fill([&](std::size_t) {
      const float size = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 1000u));
      return size * (random() % 2 == 0 ? 1.0f : -1.0f);
    });
  } else if (name == "alternating") {  // ties of both signs
    fill([](std::size_t i) { return i % 2 == 0 ? 1.0f : -1.0f; });
  } else if (name == "ascending") {
    fill([](std::size_t i) { return static_cast<float>(i); });
  } else if (name == "one-ulp-apart") {
    fill([&](std::size_t i) {
      const std::uint64_t at = (i * 2654435761u + seed) % n;
      const auto bits = static_cast<std::uint32_t>(0x3f000000u + at);
      return std::bit_cast<float>(bits | static_cast<std::uint32_t>(i % 2) << 31);
    });
  } else if (name == "staircase") {
    fill([n](std::size_t i) {
      return std::bit_cast<float>(0x3f000000u + (static_cast<std::uint32_t>(i * 64 / n) << 16));
    });
  } else if (name == "outlier") {
    fill([&](std::size_t i) { return i == n / 3 ? 1e38f : 1e-20f * normal(random); });
  } else if (name == "both-zeros") {
    fill([&](std::size_t i) { return i % 2 == 0 ? 0.0f : -0.0f; });
  } else if (name == "clustered") {  // large values side by side: a hard case for samples
    fill([&](std::size_t i) { return normal(random) * ((i / 700) % 50 == 3 ? 100.0f : 1.0f); });
  }
  return x;
}

inline std::vector<float> Noise(std::size_t n, std::uint64_t seed) {
  return DrawData("gaussian", n, seed);
}

// The result of DrawData, cached. Every method, instruction set and pool uses the same data, and
// drawing it would take longer than the test.
inline std::vector<float> MakeData(const std::string& name, std::size_t n, std::uint64_t seed) {
  constexpr std::size_t kMostKept = std::size_t{1} << 25;  // elements
  static std::mutex mutex;
  static std::map<std::tuple<std::string, std::size_t, std::uint64_t>, std::vector<float>> kept;
  static std::size_t elements = 0;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = kept.try_emplace({name, n, seed});
  if (!is_new) return at->second;
  std::vector<float> drawn = DrawData(name, n, seed);
  if (elements + n <= kMostKept) {
    elements += n;
    at->second = drawn;
  } else {
    kept.erase(at);
  }
  return drawn;
}

inline std::vector<float> Scaled(std::vector<float> x, float factor) {
  for (float& value : x) value *= factor;
  return x;
}

struct Selected {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

// Whether two selections are equal bit for bit.
inline ::testing::AssertionResult Same(const Selected& a, const Selected& b) {
  if (a.indices == b.indices && Bits(a.values) == Bits(b.values)) {
    return ::testing::AssertionSuccess();
  }
  std::size_t j = 0;
  const std::size_t both = std::min(a.indices.size(), b.indices.size());
  while (j < both && a.indices[j] == b.indices[j] && Bits(a.values[j]) == Bits(b.values[j])) ++j;
  const auto entry = [j](const Selected& of) {
    return j == of.indices.size()
               ? std::string("nothing")
               : std::to_string(of.indices[j]) + " with " + std::to_string(of.values[j]);
  };
  return ::testing::AssertionFailure()
         << "entry " << j << " is " << entry(a) << ", and " << entry(b);
}

// The elements of x that satisfy `is`.
template <class Is>
Selected Where(const std::vector<float>& x, const Is& is) {
  Selected selected;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    if (!is(x[i])) continue;
    selected.indices.push_back(i);
    selected.values.push_back(x[i]);
  }
  return selected;
}

// The indices of magnitudes above t.
inline std::vector<std::uint32_t> Above(const std::vector<float>& x, double t) {
  return Where(x, [t](double v) { return std::abs(v) > t; }).indices;
}

inline float SmallestMagnitude(const std::vector<float>& values) {
  float smallest = kInfinity;
  for (const float v : values) smallest = std::min(smallest, std::abs(v));
  return smallest;
}

// x without the elements that were sent: the residual that a selection leaves.
inline std::vector<float> Unsent(std::vector<float> x, const Selected& sent) {
  for (const std::uint32_t i : sent.indices) x[i] = 0.0f;
  return x;
}

// Expects bit for bit that sent and kept values are x, and that sent elements leave no residual.
inline void ExpectNothingLost(const std::vector<float>& x, const Selected& sent,
                              const std::vector<float>& residual) {
  for (std::size_t j = 0; j < sent.indices.size(); ++j) {
    ASSERT_LT(sent.indices[j], x.size());
    ASSERT_EQ(Bits(sent.values[j]), Bits(x[sent.indices[j]])) << "element " << sent.indices[j];
  }
  ASSERT_EQ(Bits(residual), Bits(Unsent(x, sent)));
}

// The mean and the deviation of numbers.
class Spread {
 public:
  void Add(double number) {
    ++count_;
    sum_ += number;
    squares_ += number * number;
  }
  double mean() const { return sum_ / count_; }
  double sigma() const { return std::sqrt(squares_ / count_ - mean() * mean()); }

 private:
  double count_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

// The first k elements by (|x| descending, index ascending), sorted by index.
inline Selected LargestByDefinition(const std::vector<float>& x, std::size_t k) {
  std::vector<std::uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    return std::abs(x[a]) != std::abs(x[b]) ? std::abs(x[a]) > std::abs(x[b]) : a < b;
  };
  if (k < x.size()) {
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                     before);
  }
  order.resize(k);
  std::sort(order.begin(), order.end());
  Selected selected;
  selected.indices = order;
  for (const std::uint32_t i : order) selected.values.push_back(x[i]);
  return selected;
}

// The laws of one selection from x that hold on the host and on devices, where `count` elements are
// expected of a sparsifier with an exact count.
inline void ExpectLawful(const SparsifierDescriptor& descriptor, const std::vector<float>& x,
                         const Selected& selected, std::size_t count) {
  if (descriptor.exact_count) {
    ASSERT_EQ(selected.indices.size(), count);
  }
  if (std::any_of(x.begin(), x.end(), [](float v) { return v != 0.0f; })) {
    ASSERT_GE(selected.indices.size(), 1u);
  }
  for (std::size_t i = 0; i < selected.indices.size(); ++i) {
    ASSERT_LT(selected.indices[i], x.size());
    if (i > 0) {
      ASSERT_LT(selected.indices[i - 1], selected.indices[i]);
    }
    ASSERT_EQ(Bits(selected.values[i]), Bits(x[selected.indices[i]]));
  }
}

// Gives `warm`, a top-k of n elements at a density of 1 %, gradients of these scales. It must find
// the largest, without a fallback in the first `creeping` steps and with one later.
template <class WarmSelection>
void ExpectWarmTopKIsExact(WarmSelection& warm, std::size_t n, const std::vector<float>& scales,
                           std::uint64_t creeping) {
  std::uint64_t step = 0;
  std::uint64_t after_creeping = 0;
  for (const float scale : scales) {
    auto gradient = MakeData("gaussian", n, static_cast<std::uint32_t>(step));
    for (float& g : gradient) g *= scale;
    const Selected selected = warm.Run(gradient, step);
    const Selected expected = LargestByDefinition(gradient, n / 100);
    ASSERT_EQ(selected.indices, expected.indices) << "step " << step;
    ASSERT_EQ(Bits(selected.values), Bits(expected.values));
    if (++step == creeping) after_creeping = warm.counters().fallbacks;
  }
  EXPECT_EQ(after_creeping, 0u);
  EXPECT_GT(warm.counters().fallbacks, 0u);
}

// Runs selections of one tensor. Owns the pool, the workspace, the state, the residual, and a slot
// with guards behind it.
class Selection {
 public:
  // shape: the shape of the n elements; {} is one dimension.
  Selection(const Sparsifier& sparsifier, std::size_t n, double density, int threads, bool feedback,
            std::vector<std::int64_t> shape = {})
      : sparsifier_(sparsifier),
        n_(n),
        density_(density),
        shape_(shape.empty() ? std::vector{static_cast<std::int64_t>(n)} : std::move(shape)),
        pool_(threads),
        state_(sparsifier.MakeState(n)),
        residual_(feedback ? n : 0, 0.0f),
        capacity_(SlotCapacityFor(UnderTest().find(std::string(sparsifier.name())), sparsifier, n,
                                  shape_, density)),
        indices_(capacity_ + kGuard, kGuardIndex),
        values_(capacity_ + kGuard, kGuardValue) {}

  // Owns the sparsifier, if nothing else needs it.
  Selection(std::unique_ptr<const Sparsifier> sparsifier, std::size_t n, double density,
            int threads, bool feedback, std::vector<std::int64_t> shape = {})
      : Selection(*sparsifier, n, density, threads, feedback, std::move(shape)) {
    owned_ = std::move(sparsifier);
  }

  // From now on the new residual goes to separate memory first (SelectSource::updated).
  void SelectApart() { updated_ = Buffer<float>(residual_.size()); }

  Selected Run(const std::vector<float>& gradient, std::uint64_t step, std::uint32_t id = 7) {
    std::fill(indices_.begin(), indices_.end(), kGuardIndex);
    std::fill(values_.begin(), values_.end(), kGuardValue);
    Slot slot{{indices_.data(), capacity_, {}}, {values_.data(), capacity_, {}}, capacity_, 0};
    const SelectContext context{&pool_, &workspace_, &counters_, {}};
    const SelectSource source{{gradient.data(), gradient.size(), {}},
                              {residual_.data(), residual_.size(), {}},
                              updated_.view()};
    sparsifier_.Select(context, source, density_, {id, "conv1.weight", shape_, step}, state_.get(),
                       slot);
    std::ranges::copy(updated_.host(), residual_.begin());
    Selected selected;
    selected.indices.assign(indices_.begin(), indices_.begin() + static_cast<long>(slot.count));
    selected.values.assign(values_.begin(), values_.begin() + static_cast<long>(slot.count));
    return selected;
  }

  // The input of the next selection: the gradient plus the residual.
  std::vector<float> WithResidual(const std::vector<float>& gradient) const {
    std::vector<float> x = gradient;
    for (std::size_t i = 0; i < residual_.size(); ++i) x[i] += residual_[i];
    return x;
  }

  // Whether nothing was written behind the slot.
  bool GuardsIntact() const {
    return std::all_of(indices_.begin() + static_cast<long>(capacity_), indices_.end(),
                       [](std::uint32_t i) { return i == kGuardIndex; }) &&
           std::all_of(values_.begin() + static_cast<long>(capacity_), values_.end(),
                       [](float v) { return v == kGuardValue; });
  }

  std::size_t capacity() const { return capacity_; }
  // The number of elements that the sparsifier says it keeps.
  std::size_t Count() const { return sparsifier_.Count(n_, shape_, density_); }
  std::vector<float>& residual() { return residual_; }
  const SelectCounters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint32_t kGuardIndex = 0xdeadbeef;
  static constexpr float kGuardValue = -12345.0f;
  std::unique_ptr<const Sparsifier> owned_;  // or null if another owns it
  const Sparsifier& sparsifier_;
  std::size_t n_;
  double density_;
  std::vector<std::int64_t> shape_;
  ThreadPool pool_;
  Workspace workspace_;
  SelectCounters counters_;
  std::unique_ptr<SparsifierState> state_;
  std::vector<float> residual_;
  Buffer<float> updated_;  // empty unless SelectApart was called
  std::size_t capacity_;
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
};

inline std::unique_ptr<Sparsifier> MakeSparsifier(const std::string& name, Options given = {},
                                                  std::uint64_t seed = 11) {
  const SparsifierDescriptor& descriptor = UnderTest().find(name);
  return descriptor.make(ResolveOptions("sparsifier " + name, descriptor.options, given), seed);
}

// One selection on one thread, without a residual, into a slot of this capacity.
inline Selected SelectInto(const Sparsifier& sparsifier, const std::vector<float>& x,
                           double density, const TensorInfo& info, std::size_t capacity,
                           SelectCounters& counters, SparsifierState* state = nullptr) {
  ThreadPool pool(1);
  Workspace workspace;
  Selected selected{std::vector<std::uint32_t>(capacity), std::vector<float>(capacity)};
  Slot slot{
      {selected.indices.data(), capacity, {}}, {selected.values.data(), capacity, {}}, capacity, 0};
  sparsifier.Select({&pool, &workspace, &counters, {}}, {{x.data(), x.size(), {}}, {}}, density,
                    info, state, slot);
  selected.indices.resize(slot.count);
  selected.values.resize(slot.count);
  return selected;
}

inline std::string NamePart(const std::string& part) { return part; }
inline std::string NamePart(Isa isa) { return std::string(IsaName(isa)); }
inline std::string NamePart(std::size_t n) { return std::to_string(n); }
inline std::string NamePart(DeviceKind device) {
  return device == DeviceKind::kCuda ? "cuda" : "emulated";
}

// Names a case by its parameters, which are a tuple.
inline constexpr auto NameOfTuple = [](const auto& instance) {
  return std::apply(
      [](const auto& first, const auto&... others) {
        return CaseName((NamePart(first) + ... + ("_" + NamePart(others))));
      },
      instance.param);
};

}  // namespace sparfuse::testing
