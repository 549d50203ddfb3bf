// Describes the NCCL at hand for provenance.
#include <unistd.h>

#include <algorithm>
#include <istream>
#include <string_view>

#include "core/transport/nccl/handle.hpp"
#include "core/transport/nccl/nccl.hpp"

namespace sparfuse {
namespace {

// NCCL_VERSION of nccl.h: 22809 is 2.28.9; 2708, before 2.9, is 2.7.8.
std::string VersionText(int code) {
  const int major = code < 10'000 ? code / 1000 : code / 10'000;
  const int minor = code < 10'000 ? code % 1000 / 100 : code % 10'000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(code % 100);
}

}  // namespace

NcclDescription DescribeNccl(const NcclApi& api) {
  int code = 0;
  if (const int result = api.get_version(&code); result != kNcclSuccess) {
    throw NcclError(api, result, "ncclGetVersion", nullptr);
  }
  NcclDescription description;
  description.version = VersionText(code);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with("NCCL_")) description.settings.emplace_back(*entry);
  }
  std::sort(description.settings.begin(), description.settings.end());
  return description;
}

std::map<std::string, int> NcclLinksInLog(std::istream& log) {
  std::map<std::string, int> channels;
  for (std::string line; std::getline(log, line);) {
    // "... Channel 00/1 : 0[0] -> 1[1] [send] via NET/IB/0"; the other side writes "[receive]".
    const auto channel = line.find("Channel ");
    const auto via = line.find(" via ");
    if (channel == std::string::npos || via == std::string::npos || via < channel) continue;
    if (line.find("[receive]") != std::string::npos) continue;
    const auto begin = via + std::string_view(" via ").size();
    ++channels[line.substr(begin, line.find_first_of(" \r", begin) - begin)];
  }
  return channels;
}

}  // namespace sparfuse
