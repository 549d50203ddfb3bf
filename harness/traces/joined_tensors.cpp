// Joins the gradients of a trace with the tensors of a model's table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/base/error.hpp"
#include "harness/traces/trace_model.hpp"

namespace sparfuse::harness {

namespace {

using workloads::LayerTensor;
using Shape = std::vector<std::int64_t>;

std::string ShapeName(const Shape& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

// "64x3x7x7: 2 in the trace, 1 in the table", for shapes whose counts differ.
std::string CountsText(const std::map<Shape, std::pair<int, int>>& counts) {
  std::vector<std::string> parts;
  for (const auto& [shape, of] : counts) {
    if (of.first != of.second) {
      parts.push_back(fmt::format("{}: {} in the trace, {} in the table", ShapeName(shape),
                                  of.first, of.second));
    }
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

// How often `part` is a subsequence of `whole`, up to 2.
int WaysToLeaveOut(const std::vector<Shape>& part, const std::vector<Shape>& whole) {
  std::vector<int> ways(part.size() + 1, 0);
  ways[0] = 1;
  for (const Shape& each : whole) {
    for (std::size_t i = part.size(); i-- > 0;) {
      if (part[i] == each) ways[i + 1] = std::min(2, ways[i + 1] + ways[i]);
    }
  }
  return ways.back();
}

// Joins the traced gradients with the tensors of a table.
class Joiner {
 public:
  Joiner(const TraceFacts& facts, std::span<const LayerTensor> table, const std::string& file)
      : facts_(facts), table_(table), file_(file) {}

  JoinedTensors Join() {
    const std::size_t n = facts_.tensors.size();
    if (n > table_.size()) {
      Fail(
          fmt::format("{} gradients, and the table has {} tensors: expected the table of this "
                      "model, with tensors that the table may count as frozen",
                      n, table_.size()));
    }
    const bool shapes = std::ranges::all_of(
        facts_.tensors, [](const TracedTensor& tensor) { return tensor.shape.has_value(); });
    shapes ? ByShape() : ByBuckets();
    return std::move(joined_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    SPARFUSE_THROW(kConfig, fmt::format("{} and {}: {}", facts_.file, file_, what));
  }

  void ByShape() {
    std::vector<Shape> traced, known;
    std::map<Shape, std::pair<int, int>> counts;
    for (const TracedTensor& tensor : facts_.tensors) {
      traced.push_back(*tensor.shape);
      ++counts[traced.back()].first;
    }
    for (const LayerTensor& tensor : table_) {
      known.emplace_back(tensor.shape.begin(), tensor.shape.end());
      ++counts[known.back()].second;
    }
    if (traced == known) {
      ByPosition();
      return;
    }
    const bool as_many = std::ranges::all_of(
        counts, [](const auto& each) { return each.second.first == each.second.second; });
    if (as_many) {
      InOtherOrder(traced, known);
    } else if (traced.size() < known.size() && WaysToLeaveOut(traced, known) == 1) {
      LeavingOut(traced, known);
    } else {
      Fail(fmt::format("shapes differ ({}): expected the table of this model{}", CountsText(counts),
                       traced.size() < known.size()
                           ? ", so that order and shapes tell the unused parameters"
                           : ""));
    }
  }

  void ByPosition() {
    joined_.positions.resize(facts_.tensors.size());
    std::iota(joined_.positions.begin(), joined_.positions.end(), std::size_t{0});
  }

  void InOtherOrder(const std::vector<Shape>& traced, const std::vector<Shape>& known) {
    std::map<Shape, std::vector<std::size_t>> positions;
    for (std::size_t i = 0; i < known.size(); ++i) positions[known[i]].push_back(i);
    std::map<Shape, std::size_t> next;
    for (const Shape& shape : traced) joined_.positions.push_back(positions[shape][next[shape]++]);
    joined_.notes.push_back(
        "gradients come out in another order than the table's: tensors of one shape take names in "
        "the table's order, which may be swapped among them");
  }

  void LeavingOut(const std::vector<Shape>& traced, const std::vector<Shape>& known) {
    std::vector<std::string> unused;
    for (std::size_t i = 0; i < known.size(); ++i) {
      const std::size_t at = joined_.positions.size();
      if (at < traced.size() && traced[at] == known[i]) {
        joined_.positions.push_back(i);
      } else {
        unused.push_back(table_[i].name);
      }
    }
    joined_.notes.push_back(
        fmt::format("unused in the trace, and left out: {}", fmt::join(unused, ", ")));
  }

  // Joins DDP's buckets, which are sums of neighbouring tensors.
  void ByBuckets() {
    if (facts_.tensors.size() != table_.size()) {
      Fail(
          fmt::format("{} gradients without shapes, and {} tensors: expected as many, or a trace "
                      "with record_shapes=True",
                      facts_.tensors.size(), table_.size()));
    }
    ByPosition();
    if (facts_.exchanges.empty()) {
      joined_.notes.push_back(
          "neither shapes nor exchanges prove that its gradients are the "
          "table's, in its order: record_shapes=True does");
      return;
    }
    std::size_t at = 0;
    for (std::size_t i = 0; i < facts_.exchanges.size(); ++i) {
      const std::int64_t elements = facts_.exchanges[i].elements.value_or(0);
      std::int64_t sum = 0;
      while (at < table_.size() && sum < elements)
        sum += static_cast<std::int64_t>(table_[at++].numel);
      if (sum == elements) continue;
      Fail(
          fmt::format("without shapes, exchange {} of {} elements is no sum of the table's next "
                      "tensors ({} up to {}): expected DDP's buckets in the table's order, or a "
                      "trace with record_shapes=True",
                      i, elements, sum, table_[at - 1].name));
    }
    if (at != table_.size()) {
      Fail(fmt::format("exchanges end before tensor {}: expected all tensors in them",
                       table_[at].name));
    }
  }

  const TraceFacts& facts_;
  const std::span<const LayerTensor> table_;
  const std::string& file_;
  JoinedTensors joined_;
};

}  // namespace

JoinedTensors JoinTensors(const TraceFacts& facts, std::span<const LayerTensor> table,
                          const std::string& table_file) {
  return Joiner(facts, table, table_file).Join();
}

}  // namespace sparfuse::harness
