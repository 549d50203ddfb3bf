// Examines, for `sparfuse doctor`, what this machine can run and what would disturb measurements.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

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

}  // namespace sparfuse::harness
