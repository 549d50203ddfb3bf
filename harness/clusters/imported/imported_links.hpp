// Makes what a declared cluster's file states of the links out of logs that measured them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/imported/link_log.hpp"

namespace sparfuse::harness {

// The rate that a log shows beside the one that the cluster's file gives its link, 10^9 bit/s.
struct DeliveredRate {
  const LinkLog* log = nullptr;
  double bytes = 0;      // of the largest message, whose rate it is
  double delivered = 0;  // by a node, of a send-receive or bandwidth by one pair of ranks
  double nominal = 0;    // of the links that carry it
  double declared = 0;   // what is left of these by the file's efficiency
  std::string label;     // the inputs that nominal is made of
  // A sentence where more than nominal or less than half of what is declared was delivered; or "".
  std::string conflict;
};

struct ImportedLinks {
  std::vector<const LinkLog*> curves;  // all-reduces between nodes: a [[curve]] each
  std::vector<DeclaredInput> inputs;   // of links, kind "imported"; at most one of a name
  std::vector<DeliveredRate> rates;    // of logs whose messages are large enough
  std::vector<std::string> notes;      // what was not taken of a log, and why
};

// logs must outlive the result. An input's start-up time is of messages up to 64 bytes; its
// efficiency of the largest ones, at least 1 MiB. Throws Error{kConfig} for logs of more ranks or
// nodes than the cluster has, and for two all-reduces of as many ranks.
ImportedLinks LinksOf(const DeclaredCluster& cluster, std::span<const LinkLog> logs);

// "inter_node_us = { value = 3.1, ..., kind = "imported", source = "..." }"
std::string LineOf(const DeclaredInput& input);
// The [[curve]] of an all-reduce, between two lines of comment that mark it as imported.
std::string BlockOf(const LinkLog& log);

// `text`, of a cluster's file, with a block for each log: in the place of one of as many ranks that
// an earlier import wrote, else at the end. Everything else stays as it is. Throws Error{kConfig}
// naming file and line where a block was edited since it was written.
std::string WithBlocks(std::string text, const std::string& file,
                       std::span<const LinkLog* const> logs);

}  // namespace sparfuse::harness
