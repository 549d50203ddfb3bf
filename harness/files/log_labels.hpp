// Finds the labels that launchers and loggers put before the lines of a program: ranks, hosts,
// pods, times.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace sparfuse::harness {

struct LogLabel {
  const char* name;                         // "labels of srun"
  std::size_t (*length)(std::string_view);  // of the label at the begin of a line; 0: none
  bool is_only_a_tag;                       // whether only a launcher prints it
};

// All known labels. A line may have several, one after another.
std::span<const LogLabel> LogLabels();

}  // namespace sparfuse::harness
