// Copies what a device selects from and what it selects to the host, to be checked there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/live/live_state.hpp"
#include "core/engine/live/selection_checks.hpp"

namespace sparfuse {

// Of one selection in a step that verifies. Copies are made in the order of `stream`.
class SelectionCopies {
 public:
  // Before it is selected from.
  SelectionCopies(const Stream& stream, const Selection& selection);
  void CopyAfter(const Stream& stream, const Selection& selection);
  // When the stream has made the copies, and the selection's count is known.
  void Check(SelectionChecks& checks, const Selection& selection) const;

 private:
  std::vector<float> source_, residual_;  // before
  std::vector<float> unsent_;             // after
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<std::byte> encoded_;
};

}  // namespace sparfuse
