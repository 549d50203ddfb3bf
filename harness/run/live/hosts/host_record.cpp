#include "harness/run/live/hosts/host_record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;
using nlohmann::json;

json TrafficOfHosts(const std::vector<std::string>& hosts, const std::vector<json>& traffic) {
  json all = {{"interface", traffic.front().at("interface")}, {"hosts", hosts}};
  for (const char* key : {"bytes", "others"}) {
    for (const json& host : traffic) all[key].push_back(host.at(key));
  }
  return all;
}

void TakeHostRecord(const fs::path& directory, const json& here, json& launch) {
  const fs::path file = directory / kHostRecord;
  try {
    if (fs::exists(file)) launch.update(ReadJsonFile(file));
  } catch (const Error&) {
    // Of a rank 0 that died while it wrote: the launch failed anyway.
  }
  std::error_code none;
  fs::remove(file, none);
  if (!launch.contains("network")) launch["network"] = here;
}

std::vector<std::string> WarningsOfHosts(const json& launch) {
  std::vector<std::string> warnings;
  const json& network = launch.at("network");
  for (std::size_t host = 0; host < network.at("hosts").size(); ++host) {
    const json& others = network.at("others").at(host);
    if (others.empty()) continue;
    warnings.push_back(fmt::format(
        "{}: beside {} also {} had traffic during this launch: expected --interface NAME, or "
        "nothing else that uses them",
        network["hosts"][host].get<std::string>(),
        network["interface"].is_null() ? "the busiest interface"
                                       : network["interface"].get<std::string>(),
        fmt::join(others.get<std::vector<std::string>>(), ", ")));
  }
  for (const json& warning : launch.value("warnings", json::array())) warnings.push_back(warning);
  return warnings;
}

}  // namespace sparfuse::harness
