// Reads the forms of SparDL from a collective's options.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/options.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse::baselines {

struct SpardlForm {
  std::size_t teams = 1;
  bool lazy = true;       // blocks are cut from what has accumulated, else from a payload
  bool doubling = false;  // of teams (R-SAG), else their lists are gathered (B-SAG)
  bool serial_blocks = false;

  bool gathers_lists() const { return teams > 1 && !doubling; }
  // Sizes depend on values: the other forms send k_b elements a block.
  bool notes_sizes() const { return !lazy || gathers_lists(); }
};

std::vector<OptionSpec> SpardlOptions();
// Of resolved options.
SpardlForm FormOf(const Options& options);
// Why a form cannot run on these ranks, or "".
std::string SpardlRefuses(const SpardlForm& form, const Topology& topology);

}  // namespace sparfuse::baselines
