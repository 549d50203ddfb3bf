// Makes the plans that come from no paper.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/fusion/plan.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse {

namespace {

[[noreturn]] void Refuse(const std::string& key, const std::string& sizes, const std::string& why) {
  SPARFUSE_THROW(kConfig, "planner \"given\": ", key, " = \"", sizes, "\": ", why);
}

// Parses numbers such as "3,8,66".
std::vector<std::uint64_t> Numbers(const std::string& key, const std::string& text) {
  std::vector<std::uint64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::uint64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number == 0 || (next != end && *next != ',')) {
      Refuse(key, text, "expected integers of at least 1 with commas between them, \"3,8,66\"");
    }
    numbers.push_back(number);
    if (next == end) return numbers;
    at = next + 1;
  }
}

// Adds `number` to a sum that saturates at `most` + 1.
std::uint64_t Added(std::uint64_t sum, std::uint64_t number, std::uint64_t most) {
  return number > most - std::min(sum, most) ? most + 1 : sum + number;
}

void CheckTotal(const std::string& key, const std::string& text,
                const std::vector<std::uint64_t>& sizes, std::uint64_t expected,
                const std::string& what) {
  std::uint64_t sum = 0;
  for (const std::uint64_t size : sizes) sum = Added(sum, size, expected);
  if (sum == expected) return;
  Refuse(key, text,
         "they add up to " + (sum > expected ? "more" : std::to_string(sum)) + "; expected the " +
             std::to_string(expected) + " " + what);
}

std::vector<std::size_t> LengthsByTensors(const std::string& text, const GradientLayout& layout) {
  const std::vector<std::uint64_t> units = Numbers("units", text);
  CheckTotal("units", text, units, layout.tensors(), "tensors of the gradient");
  return {units.begin(), units.end()};
}

std::vector<std::size_t> LengthsByBytes(const std::string& text, const GradientLayout& layout) {
  const std::vector<std::uint64_t> sizes = Numbers("bytes", text);
  const auto bytes_of = [&](std::size_t tensor) {
    return std::uint64_t{sizeof(float)} * layout.tensor(tensor).numel;
  };
  std::uint64_t all = 0;
  for (std::size_t t = 0; t < layout.tensors(); ++t) all += bytes_of(t);
  CheckTotal("bytes", text, sizes, all, "bytes of the gradient");
  std::vector<std::size_t> lengths;
  std::size_t tensor = 0;
  for (const std::uint64_t size : sizes) {
    const std::size_t first = tensor;
    std::uint64_t bytes = 0;
    while (bytes < size) bytes += bytes_of(tensor++);
    if (bytes != size) {
      const std::uint64_t fewer = bytes - bytes_of(tensor - 1);
      Refuse("bytes", text,
             "unit " + std::to_string(lengths.size() + 1) + " ends within tensor " +
                 layout.tensor(tensor - 1).name + "; expected " +
                 (fewer > 0 ? std::to_string(fewer) + " or " : "") + std::to_string(bytes));
    }
    lengths.push_back(tensor - first);
  }
  lengths.back() += layout.tensors() - tensor;  // tensors without elements
  return lengths;
}

Plan PlanOfGiven(const std::string& units, const std::string& bytes, const PlanInput& input) {
  if (!units.empty() && !bytes.empty()) {
    Refuse("units", units, "and bytes = \"" + bytes + "\": expected one of the two");
  }
  if (!units.empty()) return PlanOfLengths(LengthsByTensors(units, input.layout), input);
  if (!bytes.empty()) return PlanOfLengths(LengthsByBytes(bytes, input.layout), input);
  return PlanOfLengths(std::vector<std::size_t>{input.layout.tensors()}, input);
}

// The planner of units of lengths(layout) tensors.
std::unique_ptr<Planner> ByLengths(
    std::function<std::vector<std::size_t>(const GradientLayout&)> lengths) {
  return PlannerBy([lengths = std::move(lengths)](const PlanInput& input) {
    return PlanOfLengths(lengths(input.layout), input);
  });
}

// Cuts the layout into runs of tensors. begins(runs, bytes, next): whether the next tensor, of
// `next` dense bytes, begins another run although the last of `runs` runs has only `bytes`.
template <class Begins>
std::vector<std::size_t> CutByBytes(const GradientLayout& layout, const Begins& begins) {
  std::vector<std::size_t> lengths;
  double bytes = 0;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const double next = sizeof(float) * static_cast<double>(layout.tensor(t).numel);
    if (lengths.empty() || begins(lengths.size(), bytes, next)) {
      lengths.push_back(0);
      bytes = 0;
    }
    ++lengths.back();
    bytes += next;
  }
  return lengths;
}

// Closes a unit before the tensor that would exceed the threshold, as Horovod and DDP do. A tensor
// above the threshold is a unit of its own.
std::unique_ptr<Planner> ByBytes(const Options& options) {
  return ByLengths([most = DoubleOption(options, "threshold_bytes")](const GradientLayout& layout) {
    return CutByBytes(layout,
                      [&](std::size_t, double bytes, double next) { return bytes + next > most; });
  });
}

// Closes a bucket with the tensor that brings it to its size or beyond. The first bucket has a size
// of its own, so that communication begins early.
std::unique_ptr<Planner> DdpBuckets(const Options& options) {
  return ByLengths(
      [size = DoubleOption(options, "bucket_bytes"),
       first = DoubleOption(options, "first_bucket_bytes")](const GradientLayout& layout) {
        return CutByBytes(layout, [&](std::size_t buckets, double bytes, double) {
          return bytes >= (buckets == 1 ? first : size);
        });
      });
}

// Puts ceil(L / units) tensors in every unit, and the rest in the last one: SAFusion section 3.2,
// and SSFusion with `tensors_per_unit`.
std::unique_ptr<Planner> ByCount(const Options& options) {
  return ByLengths([units = static_cast<std::size_t>(IntOption(options, "units")),
                    per_unit = static_cast<std::size_t>(IntOption(options, "tensors_per_unit"))](
                       const GradientLayout& layout) {
    const std::size_t tensors = layout.tensors();
    return EqualLengths(tensors, per_unit > 0 ? per_unit : (tensors + units - 1) / units);
  });
}

// The first part of the tensors in ready order is one unit, and each other tensor is one.
std::unique_ptr<Planner> FusionDegree(const Options& options) {
  return ByLengths([degree = DoubleOption(options, "degree")](const GradientLayout& layout) {
    const auto tensors = static_cast<double>(layout.tensors());
    const auto fused = static_cast<std::size_t>(std::lround(degree * tensors));
    std::vector<std::size_t> lengths(layout.tensors() - fused, 1);
    if (fused > 0) lengths.insert(lengths.begin(), fused);
    return lengths;
  });
}

}  // namespace

PlannerDescriptor GivenPlanner() {
  return {
      .name = kGivenPlanner,
      .summary = "the units that the experiment gives",
      .source = "none: for systems with a known plan",
      .revision = 1,
      .options = {TextOption(
                      "units", "",
                      "number of tensors of each unit in ready order, \"3,8,66\"; empty: `bytes`"),
                  TextOption(
                      "bytes", "",
                      "dense bytes of each unit in ready order; if both are empty: one unit")},
      .make = [](const Options& options) {
        return PlannerBy([units = StringOption(options, "units"),
                          bytes = StringOption(options, "bytes")](const PlanInput& input) {
          return PlanOfGiven(units, bytes, input);
        });
      }};
}

std::unique_ptr<Planner> PlannerBy(std::function<Plan(const PlanInput&)> make_plan) {
  class ByFunction final : public Planner {
   public:
    explicit ByFunction(std::function<Plan(const PlanInput&)> make_plan)
        : make_plan_(std::move(make_plan)) {}
    Plan MakePlan(const PlanInput& input) const override { return make_plan_(input); }

   private:
    std::function<Plan(const PlanInput&)> make_plan_;
  };
  return std::make_unique<ByFunction>(std::move(make_plan));
}

std::uint64_t Plan::Hash() const {
  std::uint64_t hash = kFnvBegin;
  const auto mix = [&hash](std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash = FnvAdd(hash, (value >> (8 * byte)) & 0xff);
  };
  for (const Unit& unit : units) {
    mix(unit.first);
    mix(unit.last);
    mix(static_cast<std::uint64_t>(unit.sparsified) | static_cast<std::uint64_t>(unit.lane) << 8 |
        static_cast<std::uint64_t>(unit.partitions - 1) << 16 |
        static_cast<std::uint64_t>(unit.path) << 32);
    mix(static_cast<std::uint64_t>(unit.density * 1e12));
    if (unit.date > 0) mix(unit.date);
  }
  for (const TensorPlan& tensor : tensors) {
    mix(static_cast<std::uint64_t>(tensor.density * 1e12));
    mix(tensor.offloaded ? 1 : 0);
    mix(tensor.reduced ? 1 : 0);
  }
  return hash;
}

TensorPlan Plan::TensorOf(const GradientLayout& layout, std::size_t tensor) const {
  TensorPlan plan;
  if (tensors.empty()) {
    const auto unit = std::partition_point(
        units.begin(), units.end(), [tensor](const Unit& each) { return each.last <= tensor; });
    plan.density = unit->density;
  } else {
    plan = tensors[tensor];
  }
  if (layout.tensor(tensor).dense) plan.density = 1.0;
  return plan;
}

std::string Plan::UnitSizes() const {
  std::string text;
  for (const Unit& unit : units) {
    if (!text.empty()) text += ',';
    text += std::to_string(unit.last - unit.first);
  }
  return text;
}

Plan DensePlan(const Plan& plan) {
  Plan dense;
  for (const Unit& unit : plan.units) dense.units.push_back({unit.first, unit.last});
  return dense;
}

void CheckPlan(const Plan& plan, const GradientLayout& layout) {
  std::size_t next = 0;
  for (const Unit& unit : plan.units) {
    if (unit.first != next || unit.last <= unit.first || unit.last > layout.tensors()) {
      SPARFUSE_THROW(kInternal, "plan ", plan.UnitSizes(), " does not cover the ", layout.tensors(),
                     " tensors once, in order");
    }
    const bool beside = unit.lane == Lane::kSide && unit.sparsified == Sparsified::kBehind;
    if (unit.lane != Lane::kCompute && !beside) {
      SPARFUSE_THROW(kInternal, "plan ", plan.UnitSizes(), ": the unit of tensor ",
                     layout.tensor(unit.first).name, " is on lane \"", LaneName(unit.lane),
                     "\": expected \"compute\", or \"side\" if it is sparsified behind");
    }
    if (unit.partitions < 1 || (unit.partitions > 1 && unit.sparsified != Sparsified::kBehind)) {
      SPARFUSE_THROW(kInternal, "plan ", plan.UnitSizes(), ": the unit of tensor ",
                     layout.tensor(unit.first).name, " has ", unit.partitions,
                     " partitions: expected 1, or more if it is sparsified behind");
    }
    next = unit.last;
  }
  if (next != layout.tensors()) {
    SPARFUSE_THROW(kInternal, "plan ", plan.UnitSizes(), " ends before tensor ", layout.tensors());
  }
  if (plan.tensors.empty()) return;
  if (plan.tensors.size() != layout.tensors()) {
    SPARFUSE_THROW(kInternal, "plan lists ", plan.tensors.size(), " of ", layout.tensors(),
                   " tensors");
  }
  for (const Unit& unit : plan.units) {
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      const TensorPlan tensor = plan.TensorOf(layout, t);
      const bool apart = layout.dense_apart() && layout.tensor(t).dense;
      const bool fits = unit.sparsified == Sparsified::kAhead ||
                        (unit.sparsified == Sparsified::kBehind && tensor.reduced == apart) ||
                        (unit.sparsified == Sparsified::kNever && tensor == TensorPlan{});
      if (!fits || !(tensor.density > 0) || tensor.density > 1 ||
          (tensor.reduced && tensor.density < 1)) {
        SPARFUSE_THROW(kInternal, "plan: tensor ", layout.tensor(t).name, " has density ",
                       tensor.density, (tensor.reduced ? ", reduced" : ""),
                       ": expected a density in (0, 1] in a unit that is sparsified, 1 if the "
                       "tensor is reduced (in a unit sparsified behind, only if dense tensors "
                       "are apart), and 1 in any other unit");
      }
    }
  }
}

std::span<const PlannerDescriptor> CorePlanners() {
  static const std::vector<PlannerDescriptor> kPlanners = {
      {.name = "layer-wise",
       .summary = "every tensor is a unit",
       .source = "Zhang et al., Poseidon, USENIX ATC 2017",
       .revision = 1,
       .make =
           [](const Options&) {
             return ByLengths(
                 [](const GradientLayout& layout) { return EqualLengths(layout.tensors(), 1); });
           },
       .keeps_density = true},
      {.name = "by-bytes",
       .summary = "closes a unit before it would exceed a number of dense bytes",
       .source = "Sergeev and Del Balso, Horovod, arXiv 1802.05799",
       .revision = 1,
       .options = {NumberOption("threshold_bytes", 67108864.0, 1, 1e15, "dense bytes of a unit")},
       .make = ByBytes,
       .keeps_density = true},
      {.name = "ddp-buckets",
       .summary = "closes a bucket with the tensor that reaches its dense bytes; the first bucket "
                  "is smaller",
       .source = "PyTorch, torch/csrc/distributed/c10d/reducer.cpp",
       .revision = 1,
       .options = {NumberOption("bucket_bytes", 26214400.0, 1, 1e15,
                                "dense bytes of a bucket: DDP's bucket_cap_mb"),
                   NumberOption("first_bucket_bytes", 1048576.0, 1, 1e15,
                                "dense bytes of the first bucket")},
       .make = DdpBuckets,
       .deviations =
           "Buckets are in ready order from the first step on. DDP's are in ready order from the "
           "second step on; in the first step they follow the order of registration."},
      {.name = "by-count",
       .summary = "the same number of tensors in every unit",
       .source = "SAFusion, HPDC 2025, section 3.2",
       .revision = 1,
       .options = {WholeOption("units", 20, 1, 1e9,
                               "number of units M; each holds ceil(L / M) tensors"),
                   WholeOption("tensors_per_unit", 0, 0, 1e9,
                               "tensors of a unit; 0 derives it from units")},
       .make = ByCount,
       .keeps_density = true},
      {.name = "whole-model",
       .summary = "one unit",
       .source = "Shi et al., MG-WFBP, INFOCOM 2019 (SyncEASGD)",
       .revision = 1,
       .make =
           [](const Options&) {
             return ByLengths(
                 [](const GradientLayout& layout) { return std::vector{layout.tensors()}; });
           },
       .keeps_density = true},
      {.name = "fusion-degree",
       .summary = "a part of the tensors in one unit, each of the others in a unit of its own",
       .source = "SAFusion, HPDC 2025, section 2.4 (Fig. 3)",
       .revision = 1,
       .options = {NumberOption("degree", 1.0, 0, 1,
                                "part of the tensors that is fused, beginning with the first in "
                                "ready order: 0 none, 1 all")},
       .make = FusionDegree,
       .deviations =
           "The paper does not define its fusion degree. Its figure suggests that the degree "
           "counts tensors, and that the fused tensors are one buffer: the part of the tensors "
           "that is missing never exceeds the degree. The choice of the fused tensors is ours.",
       .keeps_density = true},
      GivenPlanner(),
      FragmentsPlanner(),
  };
  return kPlanners;
}

}  // namespace sparfuse
