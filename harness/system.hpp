// The machine at hand: what live trials were measured on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sparfuse {

// {"cpu_model", "cores", "memory_gib", "gpus": [...], "kernel"}: what makes a number comparable.
// `cores` are those that this process may use.
nlohmann::json DescribeSystem();

// Commit of the checkout at `root` and whether it has changes; "unknown" without git.
nlohmann::json DescribeSource(const std::string& root);

// The allow-listed environment variables that are set.
nlohmann::json DescribeEnvironment();

// Output of a shell command without its last line end; `ok` is false where it failed.
std::string CommandOutput(const std::string& command, bool& ok);
std::string ShellQuoted(const std::string& text);

}  // namespace sparfuse
