#include "core/engine/model/selected_count.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <string_view>

#include "core/base/fnv.hpp"

namespace sparfuse {
namespace {

// SplitMix64 over a key: the same draw wherever and in whatever order it is asked for.
double UniformOf(std::initializer_list<std::uint64_t> key) {
  std::uint64_t state = 0x9e3779b97f4a7c15ull;
  for (const std::uint64_t part : key) {
    state = (state ^ part) + 0x9e3779b97f4a7c15ull;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
    state ^= state >> 31;
  }
  return (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
}

// 0 for the residual that most selections have.
std::uint64_t KeyOf(std::string_view residual) {
  return residual == SparsifyRequest().residual ? 0 : FnvOf(residual);
}

}  // namespace

std::size_t KeptCount(const ModelConfig& config, Range range, double density) {
  const std::size_t n = range.size();
  if (density >= 1) return n;
  if (config.selector == nullptr) return KeptCount(n, density);
  const TensorEntry& tensor = config.layout.tensor(config.layout.PositionOf(range.begin));
  std::span<const std::int64_t> shape;
  if (range == tensor.range()) shape = tensor.shape;
  return config.selector->Count(n, shape, density);
}

bool PayloadsDiffer(const ModelConfig& config) {
  return config.selection.sigma != 0 && !config.index_shared;
}

std::size_t SelectedCount(const ModelConfig& config, const SparsifyRequest& sparsify, int rank,
                          std::uint64_t step) {
  const std::size_t n = sparsify.range.size();
  const std::size_t k = KeptCount(config, sparsify.range, sparsify.density);
  const SelectionModel& model = config.selection;
  if (model.sigma == 0 && model.mean == 0) return k;
  const int of = sparsify.copy_of.value_or(rank);
  const std::uint64_t who = config.index_shared ? 0 : static_cast<std::uint64_t>(of) + 1;
  const auto uniform = [&](std::uint64_t draw) {
    return UniformOf(
        {config.seed, step, who, sparsify.range.begin, KeyOf(sparsify.residual) + draw});
  };
  const double u = uniform(0);
  const double v = uniform(1);
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  const double count = static_cast<double>(k) * std::exp(model.mean + model.sigma * normal);
  const std::size_t room = SlotCapacity(n, sparsify.density, config.unbounded_count);
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::lround(count)), 1,
                                 std::max(room, k));
}

}  // namespace sparfuse
