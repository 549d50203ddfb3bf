#include "harness/clusters/declared_cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "harness/clusters/profile_file.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

bool StandsFor(const std::vector<std::string>& families, std::string_view family) {
  return std::ranges::find(families, family) != families.end();
}

}  // namespace

const DeclaredInput* DeclaredCluster::Find(std::string_view input, std::string_view family) const {
  const auto found = std::ranges::find_if(inputs, [&](const DeclaredInput& each) {
    return each.name == input &&
           (each.families.empty() || family.empty() || StandsFor(each.families, family));
  });
  return found == inputs.end() ? nullptr : &*found;
}

DeclaredInput* DeclaredCluster::Find(std::string_view input, std::string_view family) {
  return const_cast<DeclaredInput*>(std::as_const(*this).Find(input, family));
}

double DeclaredCluster::Value(std::string_view input, std::string_view family) const {
  if (const DeclaredInput* there = Find(input, family)) return there->value;
  for (const InputSpec& spec : InputSpecs()) {
    if (spec.name == input && spec.otherwise) return *spec.otherwise;
  }
  SPARFUSE_THROW(kInternal, "cluster " + name + " has no input " + std::string(input));
}

const ComputeTime* DeclaredCluster::ComputeOf(const std::string& workload) const {
  for (const ComputeTime& time : compute) {
    if (time.workload == workload) return &time;
  }
  const std::string_view family = workloads::FindWorkload(workload).family();
  for (const ComputeTime& time : compute) {
    if (StandsFor(time.families, family)) return &time;
  }
  return nullptr;
}

void DeclaredCluster::CheckWorkload(const std::string& workload) const {
  if (ComputeOf(workload) != nullptr || Value("compute_tflops") > 0 ||
      MeasuredTimesOf(workload) != nullptr) {
    return;
  }
  std::vector<std::string> known;
  for (const ComputeTime& time : compute)
    known.insert(known.end(), time.families.begin(), time.families.end());
  SPARFUSE_THROW(
      kConfig,
      fmt::format(
          "cluster \"{}\": nothing says what workload {} of family {} takes to compute; its "
          "times stand for {}: expected a [[compute]] of it, or an input compute_tflops{}",
          name, workload, workloads::FindWorkload(workload).family(),
          known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
          workloads::IsTable(workload)
              ? "; or the key \"family\" of its file, naming one of them, or its own "
                "forward_us and backward_us"
              : ""));
}

void DeclaredCluster::CheckSparsifier(const std::string& sparsifier) const {
  if (sparsifier == "none" || selection_costs.contains(sparsifier) ||
      std::ranges::count(coders, sparsifier, &Coder::name) > 0) {
    return;
  }
  SPARFUSE_THROW(kConfig, fmt::format("sparsifier = \"{}\" on cluster {}: neither its "
                                      "[selection_costs] nor a [[coder]] has it",
                                      sparsifier, name));
}

const nlohmann::json* DeclaredCluster::MeasuredOf(const CellConfig& config) const {
  if (!card) return nullptr;
  if (const nlohmann::json* found = card->Of(config)) return found;
  if (ComputeOf(config.workload) != nullptr || MeasuredTimesOf(config.workload) != nullptr)
    return nullptr;
  SPARFUSE_THROW(kConfig,
                 fmt::format("cluster \"{}\": its card {} was not measured with {}, and "
                             "the file has no [[compute]] of it; `{}` on such a card "
                             "measures it",
                             name, card->name, SubjectName(config), card->MeasureCommand(config)));
}

void DeclaredCluster::CheckWorkload(const CellConfig& config) const {
  if (MeasuredOf(config) == nullptr) CheckWorkload(config.workload);
}

void DeclaredCluster::CheckSparsifier(const CellConfig& config) const {
  const nlohmann::json* measured = MeasuredOf(config);
  if (measured != nullptr && measured->at("profile").at("selection").contains(config.sparsifier))
    return;
  try {
    CheckSparsifier(config.sparsifier);
  } catch (const Error& error) {
    if (measured == nullptr) throw;
    SPARFUSE_THROW(kConfig, fmt::format("{}, nor was its card {} measured with it: `{} --fresh` "
                                        "on such a card measures it",
                                        error.what(), card->name, card->MeasureCommand(config)));
  }
}

const workloads::MeasuredTimes* MeasuredTimesOf(const std::string& workload) {
  const auto& table = workloads::FindWorkload(workload).table;
  const bool all = table && table->times && table->times->forward_us &&
                   !table->times->backward_us.empty() && table->times->batch > 0;
  return all ? &*table->times : nullptr;
}

bool IsDeclared(const ProfileFolders& profiles, const std::string& cluster) {
  return profiles.Has(cluster + ".toml");
}

}  // namespace sparfuse::harness
