#include "harness/traces/nccl_logs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <tuple>

#include "core/base/error.hpp"
#include "core/cost/collective_choice.hpp"
#include "harness/clusters/imported/link_log_readers.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/log_text.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/traces/reading/trace_text.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

constexpr double kRateWithin = 1e-3;  // for rounding of Inspector's rates
constexpr const char* kInspectorVersions[] = {"v4.0", "v4.1", "v4.2"};

// A collective of a communicator, on all ranks that wrote about it.
struct CollectiveKey {
  std::string communicator, collective;
  bool operator<(const CollectiveKey& other) const {
    return std::tie(communicator, collective) < std::tie(other.communicator, other.collective);
  }
};
struct Calls {
  int ranks = 0, nodes = 0;
  std::string file, sha256;  // of the first file
  std::set<std::string> files;
  std::map<std::int64_t, std::pair<double, double>> by_number;  // bytes, the shortest us
};

class InspectorReader {
 public:
  Inspected Read(const std::vector<std::string>& files) {
    for (const std::string& file : files) ReadOne(file);
    Inspected made;
    for (auto& [key, calls] : calls_) {
      if (key.collective != "AllReduce" && key.collective != "AllGather") {
        made.notes.push_back(fmt::format("{} calls of {} of {} ranks: no curve is made of them",
                                         calls.by_number.size(), key.collective, calls.ranks));
        continue;
      }
      made.collectives.push_back(CollectiveOf(key, calls));
    }
    for (const auto& [what, n] : left_out_)
      made.notes.push_back(fmt::format("{} record{} {}: left out", n, n == 1 ? "" : "s", what));
    if (made.collectives.empty()) {
      SPARFUSE_THROW(kConfig, fmt::format("{}: no all-reduce or all-gather with coll_timing_source "
                                          "\"kernel_gpu\": expected records of NCCL Inspector on "
                                          "cards",
                                          files.front()));
    }
    return made;
  }

 private:
  void ReadOne(const std::string& file) {
    const std::string text = UnpackedText(file);
    const std::string sha256 = Sha256Hex(ReadFile(file));
    std::size_t line = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view one = Trimmed(std::string_view(text).substr(at, end - at));
      at = end + 1;
      ++line;
      if (!one.empty()) Record(file, sha256, static_cast<int>(line), one);
    }
  }

  void Record(const std::string& file, const std::string& sha256, int line, std::string_view text) {
    const json record = json::parse(text, nullptr, false);
    if (!record.is_object()) {
      FailAt(file, line,
             "no JSON object: expected one in each line, as NCCL Inspector writes; was the process "
             "killed while writing?");
    }
    const auto need = [&](const json& in, const char* key) -> const json& {
      if (!in.is_object() || !in.contains(key))
        FailAt(file, line,
               fmt::format("the key \"{}\" is missing: expected a record of NCCL "
                           "Inspector",
                           key));
      return in.at(key);
    };
    const json& header = need(record, "header");
    const json& version = need(need(record, "metadata"), "inspector_output_format_version");
    if (std::ranges::find(kInspectorVersions, version) == std::end(kInspectorVersions)) {
      FailAt(file, line,
             fmt::format("inspector_output_format_version = {}: expected one of {}", version.dump(),
                         fmt::join(kInspectorVersions, ", ")));
    }
    if (record.contains("p2p_perf")) {
      ++left_out_["of sends and receives"];
      return;
    }
    const json& call = need(record, "coll_perf");
    const auto number = [&](const json& in, const char* key) {
      const json& value = need(in, key);
      if (!value.is_number() || value.get<double>() < 0)
        FailAt(file, line,
               fmt::format("{} = {}: expected a number of at least 0", key, value.dump()));
      return value.get<double>();
    };
    const auto word = [&](const json& in, const char* key) {
      const json& value = need(in, key);
      if (!value.is_string())
        FailAt(file, line, fmt::format("{} = {}: expected a string", key, value.dump()));
      return value.get<std::string>();
    };
    const std::string source = word(call, "coll_timing_source");
    const std::string collective = word(call, "coll");
    const double bytes = number(call, "coll_msg_size_bytes"),
                 us = number(call, "coll_exec_time_us");
    const int ranks = static_cast<int>(number(header, "n_ranks"));
    const int nodes = static_cast<int>(number(header, "nnodes"));
    if (us > 0) CheckRates(file, line, call, collective, ranks, bytes, us);
    if (source != "kernel_gpu") {
      ++left_out_[fmt::format("of coll_timing_source \"{}\"", source)];
      return;
    }
    if (us <= 0 || ranks < 2) {
      ++left_out_["of no time, or of one rank"];
      return;
    }
    Calls& calls = calls_[{word(header, "id"), collective}];
    if (calls.ranks == 0) {
      calls.file = file;
      calls.sha256 = sha256;
    }
    calls.files.insert(file);
    calls.ranks = ranks;
    calls.nodes = std::max(1, nodes);
    const auto sn = static_cast<std::int64_t>(number(call, "coll_sn"));
    const auto [there, is_new] = calls.by_number.try_emplace(sn, bytes, us);
    if (is_new) return;
    if (there->second.first != bytes) {
      FailAt(file, line,
             fmt::format("{} {} has {:.0f} bytes, and {:.0f} elsewhere: expected one "
                         "size on all ranks",
                         collective, sn, bytes, there->second.first));
    }
    there->second.second = std::min(there->second.second, us);
  }

  // Checks the rates by the formulas of nccl-tests, with GB of 10^9 bytes.
  static void CheckRates(const std::string& file, int line, const json& call,
                         const std::string& collective, int ranks, double bytes, double us) {
    const double n = ranks;
    const bool shares = collective == "AllGather" || collective == "ReduceScatter";
    const double algorithm = bytes * (shares ? n : 1) / us / 1e3;
    const double factor = collective == "AllReduce" ? 2 * (n - 1) / n : shares ? (n - 1) / n : 1;
    for (const auto& [key, expected] : {std::pair("coll_algobw_gbs", algorithm),
                                        std::pair("coll_busbw_gbs", algorithm * factor)}) {
      if (!call.contains(key) || !call[key].is_number()) continue;
      const double said = call[key].get<double>();
      if (std::abs(said - expected) <= kRateWithin * std::max(expected, 1.0)) continue;
      FailAt(file, line,
             fmt::format("{} = {:g}: {:.0f} bytes in {:g} us on {} ranks are {:.6g}: "
                         "expected rates that follow from bytes and time",
                         key, said, bytes, us, ranks, expected));
    }
  }

  static InspectedCollective CollectiveOf(const CollectiveKey& key, const Calls& calls) {
    InspectedCollective made;
    made.log.file = calls.file;
    made.log.sha256 = calls.sha256;
    made.log.program = fmt::format("NCCL Inspector, {} file{},", calls.files.size(),
                                   calls.files.size() == 1 ? "" : "s");
    const bool gathers = key.collective == "AllGather";
    made.log.operation = gathers ? LinkOperation::kAllGather : LinkOperation::kAllReduce;
    made.log.ranks = calls.ranks;
    made.log.nodes = calls.nodes;
    made.log.kind = "measured";
    std::map<double, std::vector<double>> by_bytes;
    for (const auto& [sn, call] : calls.by_number) by_bytes[call.first].push_back(call.second);
    for (const auto& [bytes, us] : by_bytes) {
      const double least = *std::ranges::min_element(us);
      made.sizes.push_back({bytes, least, Median(us), static_cast<int>(us.size())});
      if (bytes > 0)
        made.log.samples.push_back({gathers ? bytes * calls.ranks : bytes, 1e-6 * least});
    }
    return made;
  }

  std::map<CollectiveKey, Calls> calls_;
  std::map<std::string, int> left_out_;
};

}  // namespace

Inspected ReadNcclInspector(const std::vector<std::string>& files) {
  return InspectorReader().Read(files);
}

namespace {

std::optional<double> NumberAfter(std::string_view text, std::string_view label) {
  const std::size_t at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(at + label.size());
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<double> NumberBefore(std::string_view text, std::string_view label) {
  const std::size_t at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t begin = at;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  return NumberAfter(text.substr(begin, at - begin), "");
}

// Reads "via NET/IB/0/GDRDMA" without the card's number.
std::string WayOf(std::string_view text) {
  const std::string_view way = WordsOf(text).front();
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= way.size();) {
    const std::size_t end = std::min(way.find('/', at), way.size());
    const std::string_view part = way.substr(at, end - at);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    if (!number) parts.push_back(part);
    at = end + 1;
  }
  return fmt::format("{}", fmt::join(parts, "/"));
}

int BytesOfDatatype(int datatype) {
  static constexpr int kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};  // ncclDataType_t
  return datatype >= 0 && datatype < 10 ? kBytes[datatype] : 0;
}

class InfoReader {
 public:
  explicit InfoReader(const std::string& file) { info_.file = file; }

  NcclInfo Read(std::string_view text) {
    const LogText lines = LinesOfLog(text);
    int of_nccl = 0;
    for (const LogLine& line : lines.lines) {
      constexpr std::string_view kMark = "NCCL INFO ";
      const std::size_t at = line.whole.find(kMark);
      if (at == std::string_view::npos) continue;
      ++of_nccl;
      Line(line.whole.substr(at + kMark.size()), line.number);
    }
    if (of_nccl == 0) {
      SPARFUSE_THROW(kConfig, fmt::format("{}: no line with \"NCCL INFO \": expected a log of "
                                          "NCCL_DEBUG=INFO",
                                          info_.file));
    }
    return std::move(info_);
  }

 private:
  void Line(std::string_view text, int number) {
    const auto set = [](int& value, std::optional<double> said) {
      if (value == 0 && said) value = static_cast<int>(*said);
    };
    if (text.starts_with("NCCL version ") && info_.version.empty()) {
      const std::string_view version = WordsOf(text)[2];
      info_.version = version.substr(0, version.find('+'));
    } else if (text.starts_with("comm ") || text.find(" comm ") != text.npos) {
      if (text.find(" nRanks ") != text.npos) {
        set(info_.ranks, NumberAfter(text, " nRanks "));
        set(info_.nodes, NumberAfter(text, " nNodes "));
        set(info_.local_ranks, NumberAfter(text, " localRanks "));
      } else if (text.find("Init COMPLETE") != text.npos) {
        set(info_.ranks, NumberAfter(text, " nranks "));
      }
    }
    if (text.find(" coll channels") != text.npos && !info_.channels) {
      if (const auto channels = NumberBefore(text, " coll channels"))
        info_.channels = static_cast<int>(*channels);
      if (const auto nvls = NumberBefore(text, " nvls channels"))
        info_.nvls_channels = static_cast<int>(*nvls);
    }
    if (const std::size_t via = text.find(" via ");
        text.starts_with("Channel ") && via != text.npos) {
      std::string way = WayOf(text.substr(via + 5));
      if (std::ranges::find(info_.ways, way) == info_.ways.end())
        info_.ways.push_back(std::move(way));
    }
    if (text.find(" -> Algo ") != text.npos) Chosen(text, number);
    if (text.find(": opCount ") != text.npos && text.starts_with("AllReduce")) {
      const auto count = NumberAfter(text, " count "), datatype = NumberAfter(text, " datatype ");
      if (!count || !datatype) return;
      const double bytes = *count * BytesOfDatatype(static_cast<int>(*datatype));
      if (std::ranges::find(info_.sizes, bytes) == info_.sizes.end()) info_.sizes.push_back(bytes);
    }
  }

  // Reads "AllReduce: 26214400 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}".
  void Chosen(std::string_view text, int number) {
    const auto bytes = NumberAfter(text, ": ");
    const auto word_after = [&](std::string_view label) -> std::string {
      const std::size_t at = text.find(label);
      if (at == text.npos) return "";
      const auto words = WordsOf(text.substr(at + label.size()));
      return words.empty() ? "" : std::string(words.front());
    };
    // Older versions of NCCL write the positions of these names (src/include/nccl_common.h).
    static constexpr const char* kAlgorithms[] = {"TREE",          "RING", "COLLNET_DIRECT",
                                                  "COLLNET_CHAIN", "NVLS", "NVLS_TREE"};
    static constexpr const char* kProtocols[] = {"LL", "LL128", "SIMPLE"};
    const auto named = [](std::string word, std::span<const char* const> names) {
      std::size_t at = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), at);
      const bool position = error == std::errc() && end == word.data() + word.size();
      return position && at < names.size() ? std::string(names[at]) : word;
    };
    NcclChosen made{std::string(text.substr(0, text.find(':'))),
                    named(word_after("Algo "), kAlgorithms),
                    named(word_after("proto "), kProtocols), bytes.value_or(0)};
    if (!bytes || made.algorithm.empty() || made.protocol.empty()) {
      FailAt(info_.file, number, "expected \"AllReduce: BYTES Bytes -> Algo NAME proto NAME\"");
    }
    const bool known = std::ranges::any_of(info_.chosen, [&](const NcclChosen& each) {
      return each.collective == made.collective && each.bytes == made.bytes &&
             each.algorithm == made.algorithm && each.protocol == made.protocol;
    });
    if (!known) info_.chosen.push_back(std::move(made));
  }

  NcclInfo info_;
};

// Versions from 2.18 on choose by the tables of 2.20.
bool IsLater(const std::string& version) {
  int major = 0, minor = 0;
  const char* end = version.data() + version.size();
  const auto [at, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc() || at == end) return true;
  std::from_chars(at + 1, end, minor);
  constexpr int kFirst = 18;
  return major > 2 || minor >= kFirst;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

NcclInfo ReadNcclInfo(std::string_view text, const std::string& file) {
  return InfoReader(file).Read(DecodedLog(text, file, "any"));
}

std::string ModelledAllReduce(const DeclaredCluster& cluster, const Topology& topology,
                              double bytes) {
  NcclMachine machine = cluster.nccl;
  constexpr double kBytesAGbit = 1e9 / 8;
  machine.links[LinkClass::kIntraNode] = {
      kBytesAGbit * cluster.Value("intra_node_gbps") * cluster.Value("intra_node_efficiency"),
      1e-6 * cluster.Value("intra_node_us")};
  machine.links[LinkClass::kInterNode] = {
      kBytesAGbit * cluster.Value("inter_node_gbps") * cluster.Value("inter_node_efficiency"),
      1e-6 * cluster.Value("inter_node_us")};
  machine.links.cards_per_node = static_cast<int>(std::lround(cluster.Value("network_cards")));
  const NcclEstimate chosen =
      NcclChoice(NcclCollective::kAllReduce, machine, topology, bytes,
                 cluster.all_reduce == AllReduceBy::kNccl2_8 ? kNccl2_8 : kNccl2_20);
  return std::string(chosen.name());
}

NcclInfoOnCluster CompareNcclInfo(const NcclInfo& info, const DeclaredCluster& cluster) {
  NcclInfoOnCluster made;
  const auto note = [&](std::string text) { made.notes.push_back(std::move(text)); };
  if (!info.version.empty()) {
    made.lines.push_back(fmt::format("all_reduce = \"{}\"  # NCCL {}",
                                     IsLater(info.version) ? "nccl-2.20" : "nccl-2.8",
                                     info.version));
  }
  if (info.channels)
    made.lines.push_back(fmt::format("channels = {}  # of [nccl]", *info.channels));
  if (info.nvls_channels.value_or(0) > 0) {
    note(
        fmt::format("{} nvls channels: switches sum the data that passes through them, which the "
                    "model leaves out",
                    *info.nvls_channels));
  }
  if (info.nodes > 0 && info.nodes > cluster.nodes)
    note(fmt::format("{} nodes, and the cluster's file has {}", info.nodes, cluster.nodes));
  if (info.local_ranks > 0 && info.local_ranks != cluster.ranks_per_node) {
    note(fmt::format("{} ranks a node, and ranks_per_node is {}", info.local_ranks,
                     cluster.ranks_per_node));
  }
  if (info.ranks > cluster.ranks())
    note(fmt::format("{} ranks, and the cluster's file has {}", info.ranks, cluster.ranks()));
  for (const std::string& way : info.ways) {
    const bool staged = way.starts_with("NET/Socket") || way.starts_with("SHM");
    const bool direct = way.find("GDRDMA") != way.npos;
    if (staged && cluster.nccl.within == NcclHop::kNvlink && way.starts_with("SHM")) {
      note(way +
           ": ranks of a node meet in the host's memory, and [nccl] says within = \"nvlink\"");
    } else if (staged) {
      note(way +
           ": the host stages all data that crosses it; the file's host_path_gbps and efficiencies "
           "must say so");
    } else if (way.starts_with("NET/IB") && !direct) {
      note(way + ": without GDRDMA, the host stages all data that leaves a node");
    }
  }
  const bool by_nccl = cluster.all_reduce >= AllReduceBy::kNccl2_8;
  for (const NcclChosen& each : info.chosen) {
    if (each.collective != "AllReduce" || !by_nccl || info.ranks < 2) continue;
    const std::string ours = ModelledAllReduce(
        cluster, {info.ranks, info.local_ranks > 0 ? info.local_ranks : cluster.ranks_per_node},
        each.bytes);
    const std::string theirs = Lower(each.algorithm) + "/" + Lower(each.protocol);
    note(fmt::format("all-reduce of {:.0f} bytes: {} as the log says, {} modelled{}", each.bytes,
                     theirs, ours, theirs == ours ? "" : ": they differ"));
  }
  if (!by_nccl && !info.chosen.empty()) {
    note(fmt::format("the log names NCCL's algorithms, and all_reduce = \"{}\": none is compared",
                     kAllReduceNames[static_cast<std::size_t>(cluster.all_reduce)]));
  }
  return made;
}

}  // namespace sparfuse::harness
