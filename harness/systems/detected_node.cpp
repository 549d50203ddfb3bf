#include "harness/systems/detected_node.hpp"

#include <net/if_arp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kVirtual = "virtual";

// Converts "100000" in 10^6 bit/s to 10^9 bit/s. Drivers that do not know the speed write -1 or no
// number.
std::optional<double> SpeedOf(const std::string& mbit_per_s) {
  const double value = std::strtod(mbit_per_s.c_str(), nullptr);
  return value > 0 && std::isfinite(value) ? std::optional(value / 1000) : std::nullopt;
}

// Reads "100 Gb/sec (4X EDR)".
std::optional<double> RateOf(const std::string& rate) {
  const std::size_t unit = rate.find(" Gb/sec");
  if (unit == std::string::npos) return std::nullopt;
  return SpeedOf(rate.substr(0, unit) + "e3");
}

// The device of an interface or a port; "" if the interface is virtual.
fs::path DeviceOf(const fs::path& entry) {
  std::error_code none;
  const fs::path device = fs::canonical(entry / "device", none);
  return none ? fs::path() : device;
}

const char* KindOfType(const std::string& type) {
  return type == std::to_string(ARPHRD_ETHER)        ? "Ethernet"
         : type == std::to_string(ARPHRD_INFINIBAND) ? "InfiniBand"
                                                     : "";
}

std::vector<NodeInterface> InterfacesOf(const fs::path& sys) {
  std::vector<NodeInterface> found, made_up;
  std::set<fs::path> with_ports, with_rdma;  // devices
  for (const fs::path& adapter : EntriesOf(sys / "class/infiniband")) {
    for (const fs::path& port : EntriesOf(adapter / "ports")) {
      if (FirstLine(port / "link_layer") != "InfiniBand") {
        with_rdma.insert(DeviceOf(adapter));
        continue;
      }
      with_ports.insert(DeviceOf(adapter));
      if (FirstLine(port / "state").find("ACTIVE") == std::string::npos) continue;
      found.push_back({adapter.filename().string() + "/" + port.filename().string(), "InfiniBand",
                       RateOf(FirstLine(port / "rate"))});
    }
  }
  for (const fs::path& each : EntriesOf(sys / "class/net")) {
    const std::string state = FirstLine(each / "operstate");
    const std::string type = FirstLine(each / "type");
    // operstate follows the carrier a second late.
    const bool up = state == "up" || state == "unknown" || FirstLine(each / "carrier") == "1";
    if (!up || type == std::to_string(ARPHRD_LOOPBACK)) continue;
    const fs::path device = DeviceOf(each);
    if (device.empty()) {
      made_up.push_back({each.filename(), kVirtual, std::nullopt});
    } else if (!with_ports.contains(device)) {
      found.push_back({each.filename(), with_rdma.contains(device) ? "RoCE" : KindOfType(type),
                       SpeedOf(FirstLine(each / "speed"))});
    }
  }
  std::ranges::sort(found, {}, &NodeInterface::name);
  return found.empty() ? made_up : found;
}

std::vector<NodeCard> CardsOf(const GpuReport& gpus) {
  std::map<std::pair<std::string, std::optional<std::int64_t>>, int> cards;
  for (const GpuCard& card : gpus.cards) {
    std::optional<std::int64_t> gib;
    if (card.total_bytes)
      gib = std::llround(std::ldexp(static_cast<double>(*card.total_bytes), -30));
    ++cards[{card.name, gib}];
  }
  std::vector<NodeCard> list;
  for (const auto& [card, count] : cards) list.push_back({card.first, card.second, count});
  return list;
}

std::vector<NodeCardLink> CardLinksOf(std::size_t cards, const GpuReport& gpus) {
  const std::size_t pairs = cards < 2 ? 0 : cards * (cards - 1) / 2;
  std::map<std::string, std::int64_t> kinds;
  for (const GpuLink& link : gpus.links) ++kinds[link.kind];
  if (pairs > gpus.links.size()) kinds[""] += static_cast<std::int64_t>(pairs - gpus.links.size());
  std::vector<NodeCardLink> list;
  for (const auto& [kind, count] : kinds) list.push_back({kind, count});
  std::ranges::stable_partition(list, [](const NodeCardLink& link) { return !link.kind.empty(); });
  return list;
}

// The key by which entries of each array are matched for comparison.
constexpr std::pair<const char*, const char*> kArrays[] = {
    {"card", "model"}, {"card_link", "kind"}, {"interface", "name"}};

// Removes and returns the first entry of this name; null if there is none. Cards of one model with
// different memory share a name and are compared in their order.
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

Node DetectNode(Node machine, const GpuReport& gpus, const fs::path& sys) {
  if (!gpus.cards.empty()) machine.cards = CardsOf(gpus);
  machine.card_links = CardLinksOf(machine.CardCount(), gpus);
  machine.interfaces = InterfacesOf(sys);
  machine.kernel.clear();
  return machine;
}

Node DetectNode() { return DetectNode(DescribeMachine(), ReadGpus(), "/sys"); }

Node DescribeNode(Node machine, int cores, const std::string& interface, const fs::path& sys) {
  machine.kernel.clear();
  machine.cores = cores;
  std::vector<NodeInterface>& network = machine.interfaces.emplace();
  if (!interface.empty()) {
    network.push_back(DetectInterface(interface, sys));
    return machine;
  }
  for (NodeInterface each : InterfacesOf(sys)) {
    each.name.clear();
    if (std::ranges::find(network, each) == network.end()) network.push_back(std::move(each));
  }
  std::ranges::sort(network, {}, [](const NodeInterface& each) {
    return std::tuple(!each.gbps, each.gbps, each.kind.empty() ? kUnknown : each.kind);
  });
  return machine;
}

Node DescribeNode(const std::string& interface) {
  return DescribeNode(DescribeMachine(), static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
                      interface, "/sys");
}

NodeInterface DetectInterface(const std::string& name, const fs::path& sys) {
  const fs::path entry = sys / "class/net" / name;
  const fs::path device = DeviceOf(entry);
  if (device.empty()) {
    constexpr std::string_view kLower = "lower_";
    for (const fs::path& each : EntriesOf(entry)) {
      const std::string lower = each.filename().string();
      if (!lower.starts_with(kLower) ||
          !fs::exists(sys / "class/net" / lower.substr(kLower.size())))
        continue;
      NodeInterface found = DetectInterface(lower.substr(kLower.size()), sys);
      if (found.gbps) found.gbps = SpeedOf(FirstLine(entry / "speed"));
      return found;
    }
    return {"", kVirtual, std::nullopt};
  }
  const char* kind = KindOfType(FirstLine(entry / "type"));
  for (const fs::path& adapter : EntriesOf(sys / "class/infiniband")) {
    if (DeviceOf(adapter) != device) continue;
    for (const fs::path& port : EntriesOf(adapter / "ports")) {
      if (FirstLine(port / "link_layer") == "InfiniBand")
        return {"", "InfiniBand", RateOf(FirstLine(port / "rate"))};
    }
    kind = "RoCE";
  }
  return {"", kind, SpeedOf(FirstLine(entry / "speed"))};
}

std::vector<NodeDifference> DifferencesOfNodes(const Node& a, const Node& b) {
  const json first = ToJson(PartsOf(a)), second = ToJson(PartsOf(b));
  std::vector<NodeDifference> differences;
  for (const auto& [array, name] : kArrays) {
    const std::string pointer = std::string("/") + array;
    std::vector<const json*> left;  // unmatched entries of the second
    for (const json& entry : second.at(array)) left.push_back(&entry);
    std::vector<std::pair<std::string, const json*>> alone;  // unmatched entries of the first
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
    // A replaced entry differs in its name. It is not reported as one missing and one new entry.
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
