#include "harness/run/live/submit/job_script.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/run/live/launch/launch_command.hpp"

namespace sparfuse::harness {

std::string Ranges(const std::set<int>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

void FitTo(const TrialPlan& plan, JobScript& script) {
  for (const PlannedTrial& trial : plan.trials) {
    const CellConfig& config = trial.config;
    script.ranks_per_node = std::max(script.ranks_per_node, config.ranks_per_node);
    script.nodes = std::max(script.nodes, NodesOf(config));
    script.threads = std::max(script.threads, config.threads_per_worker);
    if (config.device == Place::kCuda)
      script.cards = std::max(script.cards, std::min(config.ranks_per_node, config.workers));
  }
}

std::string JobScript::Text() const {
  std::string text = "#!/bin/sh\n";
  const auto add = [&](const std::string& option) { text += "#SBATCH " + option + "\n"; };
  add(fmt::format("--nodes={}", nodes));
  add(fmt::format("--ntasks-per-node={}", ranks_per_node));
  add(fmt::format("--cpus-per-task={}", threads));
  if (cards > 0) add(fmt::format("--gpus-per-node={}", cards));
  add("--signal=B:TERM@60");
  if (!options.empty()) add(options);
  add("--job-name=" + name);
  add(fmt::format("--array={}%1", Ranges(blocks)));
  if (!after.empty()) add(fmt::format("--dependency=afterany:{}", fmt::join(after, ":")));
  // In quotes Slurm takes the line as one word; a quote within, and what it replaces, is escaped.
  std::string folder;
  for (const char c : log_folder) {
    if (c == '"' || c == '\\') folder += '\\';
    if (c == '%') folder += '%';
    folder += c;
  }
  add(fmt::format("--output=\"{}/%A_%a.log\"", folder));
  text += "exec " + ShellLine({}, command) + " --block \"$SLURM_ARRAY_TASK_ID\"\n";
  return text;
}

}  // namespace sparfuse::harness
