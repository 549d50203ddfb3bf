#include "harness/traces/collectives.hpp"

#include <map>
#include <utility>

namespace sparfuse::harness {

namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::optional<int> BytesOfType(std::string_view type) {
  static const std::map<std::string_view, int> kBytes = {
      {"Float", 4},    {"float", 4},       {"Half", 2},
      {"BFloat16", 2}, {"c10::Half", 2},   {"c10::BFloat16", 2},
      {"Double", 8},   {"double", 8},      {"Long", 8},
      {"long int", 8}, {"Byte", 1},        {"unsigned char", 1},
      {"Char", 1},     {"signed char", 1}, {"Bool", 1},
      {"bool", 1},     {"Int", 4},         {"int", 4}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? std::nullopt : std::optional(found->second);
}

bool IsCollectiveKernel(std::string_view name) {
  for (const char* prefix : {"nccl", "rccl", "mscclKernel"}) {
    if (name.starts_with(prefix)) return true;
  }
  return Has(name, "rcclGenericKernel") || Has(name, "ncclKernel");
}

const char* CollectiveOfKernel(std::string_view name) {
  for (const auto& [part, collective] :
       {std::pair("AllReduce", "allreduce"), std::pair("AllGather", "allgather"),
        std::pair("ReduceScatter", "reduce_scatter"), std::pair("SendRecv", "all_to_all"),
        std::pair("Broadcast", "broadcast"), std::pair("Reduce", "reduce")}) {
    if (Has(name, part)) return collective;
  }
  return "";
}

bool IsBroadcast(std::string_view collective) { return Has(collective, "broadcast"); }

bool IsWhole(std::string_view type) {
  return type == "Int" || type == "int" || type == "Long" || type == "long int";
}

std::string_view CollectiveOfCall(std::string_view name) {
  constexpr std::string_view kSpace = "c10d::";
  return name.starts_with(kSpace) ? name.substr(kSpace.size()) : name;
}

bool IsAllReduce(std::string_view collective) {
  return collective.starts_with("allreduce") || collective.starts_with("all_reduce");
}

bool IsSharded(std::string_view collective) {
  for (const char* name : {"all_to_all", "alltoall", "all_gather", "allgather", "_allgather",
                           "reduce_scatter", "_reduce_scatter", "send", "recv"}) {
    if (collective.starts_with(name)) return true;
  }
  return false;
}

}  // namespace sparfuse::harness
