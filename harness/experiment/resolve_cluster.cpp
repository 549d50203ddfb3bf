// Resolves the connection of a cell's ranks: its link, its cluster, and the factors on the
// cluster's inputs.
#include <fmt/format.h>

#include <algorithm>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/experiment/resolver.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr Range kFactors{1e-3, 1e3};  // factors on a declared cluster's inputs

}  // namespace

bool Resolver::HasDeclaredCluster() const {
  const auto cluster = Given<std::string>("cluster", "");
  return !cluster.empty() && IsDeclared(source_.profiles, cluster);
}

int Resolver::DeclaredRanksPerNode(int workers) const {
  if (!HasDeclaredCluster()) return 1;
  const auto cluster = Given<std::string>("cluster", "");
  const int per_node = LoadDeclaredCluster(source_.profiles, cluster).ranks_per_node;
  if (workers <= per_node) return workers;
  return workers % per_node == 0 ? per_node : 1;
}

void Resolver::Link() {
  config_.link = StoredLink(Given("link", json()));
  if (config_.mode == Mode::kMeasured && config_.link) {
    Fail({"link"}, fmt::format("link = {} in mode measured: a measured link is the machine's own; "
                               "expected \"none\", or mode = \"emulated\"",
                               ToJson(config_.link).dump()));
  }
  if (config_.mode == Mode::kEmulated) EmulatedLink();
}

// The cell's link replaces the cluster's, as in mode modelled.
void Resolver::EmulatedLink() {
  if (HasDeclaredCluster()) LinkOfCluster();
  if (!config_.link) {
    Fail({"link", "mode"},
         "link = \"none\" in mode emulated: expected { gbps, alpha_us }, a declared cluster, or "
         "mode = \"measured\"");
  }
  const LinkShape& link = *config_.link;
  for (const auto& [key, value] :
       {std::pair("alpha_us", link.alpha_us), std::pair("intra_node_us", link.intra_node_us)}) {
    const bool counts = key != std::string_view("intra_node_us") || link.has_within();
    if (!counts || value >= kMinEmulableAlphaMicroseconds) continue;
    Fail({"link", "cluster"},
         fmt::format("link: {} = {}: expected at least {}: sleeping cannot emulate less{}", key,
                     value, kMinEmulableAlphaMicroseconds,
                     HasDeclaredCluster() && !Has("link")
                         ? "; it comes from cluster " + Given<std::string>("cluster", "")
                         : ""));
  }
  if (config_.ranks_per_node > 1 && !link.has_within()) {
    Fail({"link", "ranks_per_node"},
         fmt::format("link = {} with ranks_per_node = {} in mode emulated: expected "
                     "intra_node_gbps and intra_node_us in it, the links of a node's ranks to "
                     "one another",
                     ToJson(config_.link).dump(), config_.ranks_per_node));
  }
}

void Resolver::LinkOfCluster() {
  const auto name = Given<std::string>("cluster", "");
  const DeclaredCluster& declared =
      *At({"cluster"}, [&] { return &LoadDeclaredCluster(source_.profiles, name); });
  if (config_.workers > declared.ranks()) {
    Fail({"workers"},
         fmt::format("workers = {}: cluster {} has {} devices ({} nodes of {})", config_.workers,
                     name, declared.ranks(), declared.nodes, declared.ranks_per_node));
  }
  const LinkShape links = LinksOf(declared, config_);
  if (!config_.link) config_.link = links;
  if (config_.link->has_within() || config_.ranks_per_node == 1) return;
  config_.link->intra_node_gbps = links.intra_node_gbps;
  config_.link->intra_node_us = links.intra_node_us;
}

void Resolver::Cluster() {
  config_.cluster = Given<std::string>("cluster", "");
  const std::string& cluster = config_.cluster;
  if (!config_.modelled()) {
    if (cluster.empty()) return;
    if (config_.mode != Mode::kEmulated || !HasDeclaredCluster()) {
      Fail({"cluster"},
           fmt::format("cluster = \"{}\" in mode {}: expected mode = \"modelled\", or mode = "
                       "\"emulated\" with a declared cluster, whose links can be emulated",
                       cluster, ModeName()));
    }
    config_.cluster.clear();  // only the cluster's link is kept
    return;
  }
  if (cluster.empty()) {
    Fail({"mode"},
         "cluster is missing: mode modelled needs one; expected \"this-machine\", "
         "\"machines-like-this\" or a file of results/profiles");
  }
  At({"cluster"}, [&] { NeedCluster(source_.profiles, cluster); });
  if (IsDeclared(source_.profiles, cluster)) return DeclaredClusterFits();
  if (workload_->table) {
    Fail({"cluster", "workload"},
         fmt::format(
             "cluster = \"{}\" with a model table: its times would be measured by training, which "
             "a table cannot do; expected a declared cluster (a .toml file of results/profiles)",
             cluster));
  }
}

void Resolver::DeclaredClusterFits() const {
  const DeclaredCluster& declared =
      *At({"cluster"}, [&] { return &LoadDeclaredCluster(source_.profiles, config_.cluster); });
  if (config_.link && config_.link->host_us > 0) {
    Fail({"link"}, fmt::format("link: host_us = {:g} on cluster {}: its file states the host's "
                               "times; expected gbps and alpha_us alone",
                               config_.link->host_us, config_.cluster));
  }
  At({"cluster", "workload"}, [&] { declared.CheckWorkload(config_); });
  At({"cluster", "sparsifier"}, [&] { declared.CheckSparsifier(config_); });
  if (config_.workers > declared.ranks()) {
    Fail({"workers"},
         fmt::format("workers = {}: cluster {} has {} devices ({} nodes of {}); for more, copy "
                     "its file and declare them",
                     config_.workers, config_.cluster, declared.ranks(), declared.nodes,
                     declared.ranks_per_node));
  }
}

// Resolves factors on the inputs in a declared cluster's file.
void Resolver::Inputs() {
  if (!Has("inputs")) return;
  const json& given = given_.at("inputs").value;
  if (config_.cluster.empty() || !IsDeclared(source_.profiles, config_.cluster)) {
    Fail({"inputs"}, fmt::format("inputs = {}: expected them with a declared cluster only (a "
                                 ".toml file of results/profiles)",
                                 Shown(given)));
  }
  for (const auto& [group, factor] : given.items()) {
    if (std::ranges::find(InputGroups(), group) == InputGroups().end()) {
      Fail({"inputs"},
           fmt::format("inputs: unknown input \"{}\"{}", group, Suggestion(group, InputGroups())));
    }
    if (const std::string wrong = WhatIsWrongWithNumber(factor, kFactors); !wrong.empty())
      Fail({"inputs"}, fmt::format("inputs: {} = {}: expected {}", group, Shown(factor), wrong));
    if (factor.get<double>() != 1) config_.inputs[group] = factor.get<double>();
  }
}

// Checks that the buffers which the file states would be broadcast. None of them says nothing.
void Resolver::Buffers() {
  if (!config_.broadcast_bytes) return;
  const auto unless_none = [&](const std::string& why) {
    if (*config_.broadcast_bytes > 0)
      Fail({"broadcast_bytes"},
           fmt::format("broadcast_bytes = {}: {}", *config_.broadcast_bytes, why));
    config_.broadcast_bytes.reset();
  };
  if (config_.cluster.empty() || !IsDeclared(source_.profiles, config_.cluster)) {
    return unless_none(
        "expected it with a declared cluster only (a .toml file of results/profiles)");
  }
  const DeclaredCluster& declared = LoadDeclaredCluster(source_.profiles, config_.cluster);
  if (declared.buffers == BuffersBy::kLocal) {
    return unless_none(fmt::format(
        "cluster {}{} leaves buffers to each rank; expected 0, or buffers = \"ring\" or \"tree\" "
        "in its file",
        config_.cluster, declared.stack.empty() ? "" : " of stack " + declared.stack));
  }
  if (config_.method_options.has_local_steps())
    unless_none(fmt::format("expected 0 with method {}, whose ranks train alone", config_.method));
}

}  // namespace sparfuse::harness
