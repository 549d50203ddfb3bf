// Describes the machine at hand, which live trials are measured on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"

namespace sparfuse::harness {

// {"cpu_model", "cores", "memory_gib", "gpus": [...], "kernel"}: what makes a number comparable.
// `cores` are those that this process may use; `gpus` the cards' models, sorted: which card of a
// model it is and how fast it is clocked belong to a trial, not to the machine's identity.
nlohmann::json DescribeSystem();

// Name of the host that this process is on.
std::string HostName();

// What programs may still take: what the kernel calls available, or less where a control group
// limits this process.
double AvailableMemoryBytes();

// {"driver", "cuda", "cards": [{"index", "name", "uuid", "pci", "sm_clock", "memory_clock",
// "held_down_by", "ecc", "power_limit_watts", "mig"}, ...], "topology": [{"cards": [a, b], "kind"},
// ...]}: the state of the cards while a trial runs. null where a card does not tell; null for all
// where there is no card.
nlohmann::json DescribeGpus(const GpuReport& report);

// {"commit", "dirty"}: of the checkout at `root`, and whether it has changes; of an archive
// (scripts/bundle) what its archive.json says. "unknown" and null without git.
nlohmann::json DescribeSource(const std::string& root);

// The environment variables that a trial's record has, where they are set.
const std::vector<const char*>& DescribedVariables();
nlohmann::json DescribeEnvironment();

// Output of a shell command without its last line end; `ok` is false where it failed.
std::string CommandOutput(const std::string& command, bool& ok);
std::string ShellQuoted(const std::string& text);

}  // namespace sparfuse::harness
