#include "harness/systems/recorded_node.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "harness/machine/system.hpp"
#include "harness/systems/detected_node.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;
using nlohmann::json;

json DescribeNode(json system, int cores, const std::string& interface, const fs::path& sys) {
  json node;
  for (const char* key : {"cpu_model", "memory_gib", "gpus"}) node[key] = system.at(key);
  node["cores"] = cores;
  std::set<json> network;
  if (!interface.empty()) {
    network.insert(DetectInterface(interface, sys));
  } else {
    const json detected = DetectNode(system, {}, sys);
    for (json each : detected.at("interface")) {
      each.erase("name");
      network.insert(std::move(each));
    }
  }
  node["network"] = network;
  return node;
}

json DescribeNode(const std::string& interface) {
  return DescribeNode(DescribeSystem(), static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
                      interface, "/sys");
}

json CountedNodes(std::span<const json> nodes) {
  json counted = json::array();
  for (const json& node : nodes) {
    const auto found = std::ranges::find_if(counted, [&](json known) {
      known.erase("count");
      return known == node;
    });
    if (found == counted.end()) {
      counted.push_back(node);
      counted.back()["count"] = 1;
    } else {
      (*found)["count"] = (*found)["count"].get<int>() + 1;
    }
  }
  return counted;
}

json SystemOfNodes(std::span<const json> nodes) {
  std::set<json> kinds;
  for (json node : nodes) {
    node.erase("count");
    kinds.insert(std::move(node));
  }
  return {{"nodes", kinds}};
}

std::string NetworkLine(const json& node) {
  std::string line;
  for (const json& each : node.value("network", json::array())) {
    line += fmt::format("{}{}", line.empty() ? "" : ", ", each.value("kind", kUnknown));
    if (const json speed = each.value("gbps", json()); speed.is_number())
      line += fmt::format(" {:g} Gbit/s", speed.get<double>());
  }
  return line;
}

}  // namespace sparfuse::harness
