// Examines this machine for `sparfuse doctor`: the trials that it can run, and causes of disturbed
// measurements.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"

namespace sparfuse::harness {

struct Finding {
  enum class Level {
    kGood,
    kNote,
    kWarning,
    kError,  // trials would fail
  } level = Level::kGood;
  std::string what, message;
};

struct DoctorPaths {
  std::filesystem::path root, results, worker, python;
};

// Reads; changes nothing. Cost: a second, for asking mpirun and Python their versions.
std::vector<Finding> Examine(const DoctorPaths& paths);

// The parts of CUDA in this build.
struct CudaBuild {
  bool linked = false;
  std::string info;   // CudaBuildInfo()
  int runtime = 0;    // 13000 is 13.0; 0 unknown
  int devices = 0;    // that the runtime sees
  std::string wheel;  // the CUDA runtime that LibTorch's wheel brings, "13.0.96"; "" none
};

// `root`: the checkout; its virtual environment has LibTorch.
CudaBuild DescribeCudaBuild(const std::filesystem::path& root);

std::vector<Finding> GpuFindings(const GpuReport& report, const CudaBuild& build);

}  // namespace sparfuse::harness
