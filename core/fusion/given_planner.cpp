#include "core/fusion/given_planner.hpp"

#include <charconv>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse {
namespace {

[[noreturn]] void Refuse(const std::string& key, const std::string& sizes, const std::string& why) {
  SPARFUSE_THROW(kConfig, "planner \"given\": " + key + " = \"" + sizes + "\": " + why);
}

// "3,8,66".
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

// Adds `number` to a sum that stays at `most` + 1 once it is beyond.
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

std::vector<std::size_t> ByTensors(const std::string& text, const GradientLayout& layout) {
  const std::vector<std::uint64_t> units = Numbers("units", text);
  CheckTotal("units", text, units, layout.tensors(), "tensors of the gradient");
  return {units.begin(), units.end()};
}

std::vector<std::size_t> ByBytes(const std::string& text, const GradientLayout& layout) {
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

class Given final : public Planner {
 public:
  Given(std::string units, std::string bytes)
      : units_(std::move(units)), bytes_(std::move(bytes)) {}
  std::string_view name() const noexcept override { return kGivenPlanner; }
  Plan MakePlan(const PlanInput& input) const override {
    if (!units_.empty() && !bytes_.empty()) {
      Refuse("units", units_, "and bytes = \"" + bytes_ + "\": expected one of the two");
    }
    if (!units_.empty()) return PlanOfLengths(ByTensors(units_, input.layout), input);
    if (!bytes_.empty()) return PlanOfLengths(ByBytes(bytes_, input.layout), input);
    return PlanOfLengths(std::vector<std::size_t>{input.layout.tensors()}, input);
  }

 private:
  std::string units_, bytes_;
};

}  // namespace

PlannerDescriptor GivenPlanner() {
  return {
      .name = kGivenPlanner,
      .summary = "the units that the experiment gives",
      .source = "none: for systems whose plan is known",
      .revision = 1,
      .options = {TextOption(
                      "units", "",
                      "numbers of tensors of the units in ready order, \"3,8,66\"; empty: `bytes`"),
                  TextOption("bytes", "",
                             "dense bytes of the units in ready order; empty as well: one unit")},
      .make = [](const Options& options) -> std::unique_ptr<Planner> {
        return std::make_unique<Given>(StringOption(options, "units"),
                                       StringOption(options, "bytes"));
      }};
}

}  // namespace sparfuse
