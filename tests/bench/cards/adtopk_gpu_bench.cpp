// Times all-dimension top-k on a CUDA card against one read of the tensor: rows, the fibres of
// convolution kernels, and columns.
#include "tests/bench/cards/gpu_bench.hpp"

namespace sparfuse::bench {
namespace {

using Shape = std::vector<std::int64_t>;

struct Case {
  std::string name;
  std::string axis;
  Shape shape;
};

void RegisterAll() {
  RegisterGpuLimits();
  std::vector<Case> cases = {
      {"rows", "1", {400'000, 64}},       {"rows", "1", {33'333, 768}},
      {"rows", "1", {800, 32'000}},       {"kernels", "1", {5120, 512, 3, 3}},
      {"kernels", "1", {8000, 64, 7, 7}}, {"columns", "0", {768, 33'280}},
      {"columns", "0", {5000, 5120}}};
  for (const std::size_t n : GpuSizes()) {
    for (const std::int64_t length : {512, 5120}) {
      cases.push_back({"rows", "1", {static_cast<std::int64_t>(n) / length, length}});
    }
  }
  for (const Case& c : cases) {
    std::size_t n = 1;
    for (const std::int64_t extent : c.shape) n *= static_cast<std::size_t>(extent);
    const std::string shape = "/n:" + std::to_string(n) +
                              "/fibre:" + std::to_string(c.axis == "0" ? c.shape[0] : c.shape[1]);
    for (const double density : {0.001, 0.01, 0.05}) {
      for (const std::string& data : DataNames(n)) {
        for (const auto& [start, name] :
             {std::pair{Start::kCold, ""}, std::pair{Start::kFeedback, "/feedback"}}) {
          RegisterOnCard(
              "adtopk/" + c.name + shape + "/density:" + Number(density) + "/data:" + data + name,
              [=, start = start](::benchmark::State& state) {
                SelectOnCard(state, "adtopk", {{"axis", c.axis}}, n, density, data, start, c.shape);
              });
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::GpuMain(argc, argv);
}
