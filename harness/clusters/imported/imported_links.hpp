// Makes the statements of a declared cluster's file about links from logs that measured them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::harness {

enum class LinkOperation : std::uint8_t {
  kAllReduce,
  kAllGather,
  kSendReceive,  // every rank sends to the next one, all at once
  kLatency,      // one way between two ranks
  kBandwidth     // one way between two ranks, many messages in flight
};
inline constexpr const char* kLinkOperationNames[] = {"all-reduce", "all-gather", "send-receive",
                                                      "latency", "bandwidth"};

struct LinkSample {
  double bytes = 0;    // of an all-gather a rank's result, of others the bytes that a rank sends
  double seconds = 0;  // of bandwidths: bytes over the rate
};

// A run of one program.
struct LinkLog {
  std::string file, sha256;  // the name as given; the hash of the bytes
  std::string program;       // "all_reduce_perf", "osu_latency"
  LinkOperation operation = LinkOperation::kAllReduce;
  int ranks = 0, nodes = 0;
  std::vector<LinkSample> samples = {};  // bytes grow
  bool verified = true;                  // its results were compared with the right ones
  std::string kind = "imported";         // of the values made of it, of InputKinds()
  std::vector<std::string> notes = {};   // text that was removed before its lines

  // The rate in bytes a second that each link would need for all ranks together: nccl-tests' bus
  // bandwidth (doc/PERFORMANCE.md), from 2 (n - 1) / n bytes of an all-reduce or (n - 1) / n of an
  // all-gather.
  double BusBandwidth(const LinkSample& sample) const;
  // "all_reduce_perf of 16 ranks on 2 nodes: run.log, sha256 ..."
  std::string Source() const;
};

// Facts that a log may lack. If the log has them, they must agree.
struct AskedOfLog {
  int ranks = 0, nodes = 0;  // 0: not given
  std::optional<LinkOperation> operation;
};

// Reads the output of all_reduce_perf, all_gather_perf or sendrecv_perf: the table on standard
// output, or the file of -J. Times are the out-of-place ones. Throws Error{kConfig} naming file,
// line (in JSON: the key) and the expected form: for other programs, units and columns; for rows
// that contradict the definitions of their bandwidths; for wrong results; for a log that was cut
// off.
LinkLog ReadNcclTests(std::string_view text, const std::string& file, const AskedOfLog& asked);

// The output of osu_latency, osu_bw, osu_allreduce or osu_allgather. Throws likewise; these do not
// say where their ranks ran, so that `asked` has to.
LinkLog ReadOsu(std::string_view text, const std::string& file, const AskedOfLog& asked);

// Reads each outcome of a file that `sparfuse system fingerprint` wrote: rings of messages through
// all ranks and within nodes, and the backend's all-reduces. Throws Error{kConfig} for a file
// without any of these, and the errors of ReadProfiles.
std::vector<LinkLog> ReadFingerprintLogs(const std::string& file);

// The rate that a log shows, and the rate that the cluster's file gives its link, in 10^9 bit/s.
struct DeliveredRate {
  const LinkLog* log = nullptr;
  double bytes = 0;      // of the largest message, which gives the rate
  double delivered = 0;  // by a node, of a send-receive or bandwidth by one pair of ranks
  double nominal = 0;    // of the links that carry it
  double declared = 0;   // the nominal rate times the file's efficiency
  std::string label;     // the inputs that nominal is made of
  // A sentence if the delivered rate is more than nominal, or less than half of the declared rate;
  // or "".
  std::string conflict;
};

struct ImportedLinks {
  std::vector<const LinkLog*> curves;  // all-reduces between nodes: a [[curve]] each
  std::vector<DeclaredInput> inputs;   // of links, of their logs' kind; at most one of a name
  std::vector<DeliveredRate> rates;    // of logs whose messages are large enough
  std::vector<std::string> notes;      // the parts of a log that were not taken, and why
};

// logs must outlive the result. An input's start-up time comes from messages up to 64 bytes, its
// efficiency from the largest messages, of at least 1 MiB. Throws Error{kConfig} for logs of more
// ranks or nodes than the cluster has, and for two all-reduces with equal numbers of ranks.
ImportedLinks LinksOf(const DeclaredCluster& cluster, std::span<const LinkLog> logs);

// "inter_node_us = { value = 3.1, ..., kind = "imported", source = "..." }"
std::string LineOf(const DeclaredInput& input);
// The [[curve]] of an all-reduce, between two lines of comment that mark it as imported.
std::string BlockOf(const LinkLog& log);

// Returns `text`, a cluster's file, with `body` between two lines of comment that name `title`. The
// block replaces the block of an earlier import with that title, or else goes to the end. An empty
// body removes the block. Everything else stays. Throws Error{kConfig} naming file and line if the
// block was edited since it was written.
std::string WithMarkedBlock(std::string text, const std::string& file, const std::string& title,
                            const std::string& body);

// The same with a block for each log.
std::string WithBlocks(std::string text, const std::string& file,
                       std::span<const LinkLog* const> logs);

}  // namespace sparfuse::harness
