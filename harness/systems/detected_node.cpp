#include "harness/systems/detected_node.hpp"

#include <net/if_arp.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The first line of a file of sysfs; "" where it cannot be read, as the speed of an idle card.
std::string LineOf(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// Sorted, so that equal nodes give equal descriptions.
std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

// 10^9 bit/s of "100000", in 10^6; -1 and what is no number are what drivers say that do not know.
json SpeedOf(const std::string& mbit_per_s) {
  double value = 0;
  try {
    value = std::stod(mbit_per_s);
  } catch (const std::exception&) {
    return kUnknown;
  }
  return value > 0 && std::isfinite(value) ? json(value / 1000) : json(kUnknown);
}

// Of "100 Gb/sec (4X EDR)".
json RateOf(const std::string& rate) {
  const std::size_t unit = rate.find(" Gb/sec");
  if (unit == std::string::npos) return kUnknown;
  return SpeedOf(rate.substr(0, unit) + "e3");
}

// Of the device that an interface or port belongs to; "" where software made it up.
fs::path DeviceOf(const fs::path& entry) {
  std::error_code none;
  const fs::path device = fs::canonical(entry / "device", none);
  return none ? fs::path() : device;
}

json InterfacesOf(const fs::path& sys) {
  std::map<std::string, json> found;
  std::set<fs::path> with_ports, with_rdma;  // devices
  for (const fs::path& adapter : EntriesOf(sys / "class/infiniband")) {
    for (const fs::path& port : EntriesOf(adapter / "ports")) {
      if (LineOf(port / "link_layer") != "InfiniBand") {
        with_rdma.insert(DeviceOf(adapter));
        continue;
      }
      with_ports.insert(DeviceOf(adapter));
      if (LineOf(port / "state").find("ACTIVE") == std::string::npos) continue;
      const std::string name = adapter.filename().string() + "/" + port.filename().string();
      found[name] = {{"kind", "InfiniBand"}, {"gbps", RateOf(LineOf(port / "rate"))}};
    }
  }
  std::map<std::string, json> made_up;
  for (const fs::path& each : EntriesOf(sys / "class/net")) {
    const std::string state = LineOf(each / "operstate");
    const std::string type = LineOf(each / "type");
    // operstate follows the carrier a second late.
    const bool up = state == "up" || state == "unknown" || LineOf(each / "carrier") == "1";
    if (!up || type == std::to_string(ARPHRD_LOOPBACK)) continue;
    const fs::path device = DeviceOf(each);
    if (device.empty()) {
      made_up[each.filename()] = {{"kind", "virtual"}, {"gbps", kUnknown}};
    } else if (!with_ports.contains(device)) {
      const char* kind = with_rdma.contains(device)                  ? "RoCE"
                         : type == std::to_string(ARPHRD_ETHER)      ? "Ethernet"
                         : type == std::to_string(ARPHRD_INFINIBAND) ? "InfiniBand"
                                                                     : kUnknown;
      found[each.filename()] = {{"kind", kind}, {"gbps", SpeedOf(LineOf(each / "speed"))}};
    }
  }
  json interfaces = json::array();
  for (auto& [name, interface] : found.empty() ? made_up : found) {
    interface["name"] = name;
    interfaces.push_back(std::move(interface));
  }
  return interfaces;
}

json CardsOf(const json& models, const GpuReport& gpus) {
  std::map<std::pair<std::string, std::optional<std::int64_t>>, int> cards;
  for (const GpuCard& card : gpus.cards) {
    std::optional<std::int64_t> gib;
    if (card.total_bytes)
      gib = std::llround(std::ldexp(static_cast<double>(*card.total_bytes), -30));
    ++cards[{card.name, gib}];
  }
  if (gpus.cards.empty()) {
    for (const json& model : models) ++cards[{model.get<std::string>(), std::nullopt}];
  }
  json list = json::array();
  for (const auto& [card, count] : cards) {
    list.push_back({{"model", card.first.empty() ? kUnknown : card.first},
                    {"memory_gib", card.second ? json(*card.second) : json(kUnknown)},
                    {"count", count}});
  }
  return list;
}

json CardLinksOf(std::size_t cards, const GpuReport& gpus) {
  const std::size_t pairs = cards < 2 ? 0 : cards * (cards - 1) / 2;
  std::map<std::string, std::size_t> kinds;
  for (const GpuLink& link : gpus.links) ++kinds[link.kind.empty() ? kUnknown : link.kind];
  if (pairs > gpus.links.size()) kinds[kUnknown] += pairs - gpus.links.size();
  json list = json::array();
  for (const auto& [kind, count] : kinds) list.push_back({{"kind", kind}, {"pairs", count}});
  return list;
}

// What names an entry of each array, so that the same ones are compared.
constexpr std::pair<const char*, const char*> kArrays[] = {
    {"card", "model"}, {"card_link", "kind"}, {"interface", "name"}};

// Takes out the first entry of this name; null where there is none. Cards of a model with unlike
// memory have one name and are compared in their order.
const json* TakeNamed(std::vector<const json*>& entries, const char* key, const json& name) {
  const auto found =
      std::ranges::find_if(entries, [&](const json* entry) { return entry->at(key) == name; });
  if (found == entries.end()) return nullptr;
  const json* entry = *found;
  entries.erase(found);
  return entry;
}

void AddDifferences(const std::string& pointer, const json& first, const json& second,
                    std::vector<NodeDifference>& differences) {
  for (const auto& [key, value] : second.items()) {
    if (value.is_array() || value == kUnknown || first.at(key) == value) continue;
    differences.push_back({pointer + "/" + key, first.at(key), value});
  }
}

}  // namespace

json DetectNode(const json& system, const GpuReport& gpus, const fs::path& sys) {
  const std::string processor = system.at("cpu_model");
  json node;
  node["processor"] = processor.empty() ? kUnknown : processor;
  node["cores"] = system.at("cores");
  node["memory_gib"] = system.at("memory_gib");
  node["card"] = CardsOf(system.at("gpus"), gpus);
  const std::size_t cards = gpus.cards.empty() ? system.at("gpus").size() : gpus.cards.size();
  node["card_link"] = CardLinksOf(cards, gpus);
  node["interface"] = InterfacesOf(sys);
  return node;
}

json DetectNode() { return DetectNode(DescribeSystem(), ReadGpus(), "/sys"); }

json DetectInterface(const std::string& name, const fs::path& sys) {
  const fs::path entry = sys / "class/net" / name;
  const fs::path device = DeviceOf(entry);
  if (device.empty()) {
    constexpr std::string_view kLower = "lower_";
    for (const fs::path& each : EntriesOf(entry)) {
      const std::string lower = each.filename().string();
      if (!lower.starts_with(kLower) ||
          !fs::exists(sys / "class/net" / lower.substr(kLower.size())))
        continue;
      json found = DetectInterface(lower.substr(kLower.size()), sys);
      if (found["gbps"] != kUnknown) found["gbps"] = SpeedOf(LineOf(entry / "speed"));
      return found;
    }
    return {{"kind", "virtual"}, {"gbps", kUnknown}};
  }
  const std::string type = LineOf(entry / "type");
  const char* kind = type == std::to_string(ARPHRD_ETHER)        ? "Ethernet"
                     : type == std::to_string(ARPHRD_INFINIBAND) ? "InfiniBand"
                                                                 : kUnknown;
  for (const fs::path& adapter : EntriesOf(sys / "class/infiniband")) {
    if (DeviceOf(adapter) != device) continue;
    for (const fs::path& port : EntriesOf(adapter / "ports")) {
      if (LineOf(port / "link_layer") == "InfiniBand")
        return {{"kind", "InfiniBand"}, {"gbps", RateOf(LineOf(port / "rate"))}};
    }
    kind = "RoCE";
  }
  return {{"kind", kind}, {"gbps", SpeedOf(LineOf(entry / "speed"))}};
}

std::vector<NodeDifference> DifferencesOfNodes(const json& first, const json& second) {
  std::vector<NodeDifference> differences;
  for (const auto& [array, name] : kArrays) {
    const std::string pointer = std::string("/") + array;
    std::vector<const json*> left;  // of the second
    for (const json& entry : second.at(array)) left.push_back(&entry);
    std::vector<std::pair<std::string, const json*>> alone;  // of the first
    const json& entries = first.at(array);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const json& entry = entries[i];
      const std::string place = pointer + "/" + std::to_string(i);
      if (const json* other = TakeNamed(left, name, entry.at(name))) {
        AddDifferences(place, entry, *other, differences);
      } else {
        alone.emplace_back(place, &entry);
      }
    }
    // What was replaced differs in its name, and is not gone here and new there.
    const std::size_t replaced = std::min(alone.size(), left.size());
    for (std::size_t i = 0; i < replaced; ++i)
      AddDifferences(alone[i].first, *alone[i].second, *left[i], differences);
    for (std::size_t i = replaced; i < alone.size(); ++i)
      differences.push_back({alone[i].first, *alone[i].second, nullptr});
    for (std::size_t i = replaced; i < left.size(); ++i)
      differences.push_back({pointer, nullptr, *left[i]});
  }
  AddDifferences("", first, second, differences);
  return differences;
}

}  // namespace sparfuse::harness
