// Checks what nccl-tests says of a size, whichever form it says it in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "harness/clusters/imported/link_log.hpp"

namespace sparfuse::harness {

// Of a size, out of place. Rates as they are printed: 10^9 bytes a second.
struct NcclTestsRow {
  double bytes = 0, seconds = 0, algorithm_gbytes = 0, bus_gbytes = 0;
  std::optional<double> wrong;  // elements; nothing: not compared (-c 0)
};

// Fills in what the program measures by its name ("all_reduce_perf_mpi"), or as it was asked where
// the log has none. Throws Error{kConfig} for other programs.
void SetOperation(const std::string& file, std::string_view program, const AskedOfLog& asked,
                  LinkLog& log);

// Adds the row to a log whose ranks are known. `where`: line 0 and a key of JSON, or a line.
void AddRow(const std::string& file, int line, const std::string& where, const NcclTestsRow& row,
            LinkLog& log);

// The form that -J writes.
LinkLog ReadNcclTestsJson(std::string_view text, const std::string& file, const AskedOfLog& asked);

}  // namespace sparfuse::harness
