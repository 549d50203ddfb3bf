// Names the tensors of the benchmarks of all-dimension top-k, and its selections from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {

struct FibreCase {
  std::string name;
  std::string axis;
  std::vector<std::int64_t> shape;

  std::size_t n() const { return ElementsOf(shape); }
  std::string Keys() const {
    return At(n()) + "/fibre:" + std::to_string(axis == "0" ? shape[0] : shape[1]);
  }
};

inline void AddRows(const std::vector<std::size_t>& sizes, std::vector<FibreCase>& cases) {
  for (const std::size_t n : sizes) {
    for (const std::int64_t length : {512, 5120}) {
      cases.push_back({"rows", "1", {static_cast<std::int64_t>(n) / length, length}});
    }
  }
}

// Calls add(the row's name, the case) for every kind of data.
void ForFibreSelections(const FibreCase& c, double density, const auto& add) {
  for (const std::string& data : DataNames(c.n())) {
    for (const Start start : {Start::kCold, Start::kFeedback}) {
      add("adtopk/" + c.name + c.Keys() + "/density:" + Number(density) + "/data:" + data +
              (start == Start::kCold ? "" : "/feedback"),
          SelectionCase{c.n(), density, data, start});
    }
  }
}

}  // namespace sparfuse::bench
