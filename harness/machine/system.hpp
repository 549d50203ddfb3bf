// Describes this machine and its software, as live trials record them.
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"
#include "harness/records/machine.hpp"
#include "harness/records/node.hpp"

namespace sparfuse::harness {

// The facts that make numbers comparable. The cores are those that this process may use. Cards have
// models and counts. The individual card and its clock belong to a trial, not to the machine's
// identity.
Node DescribeMachine();
System DescribeSystem();

// Readers of what the kernel tells. The first line of a file; "" if it cannot be read, like the
// speed of an idle card. A folder's entries, sorted. The cores that this process may run on,
// ascending. The processor time of CLOCK_THREAD_CPUTIME_ID or CLOCK_PROCESS_CPUTIME_ID, in seconds.
std::string FirstLine(const std::filesystem::path& file);
std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder);
std::vector<int> UsableCores();
double CpuSeconds(clockid_t clock);

// Name of the host that this process is on.
std::string HostName();

// The memory that programs may still take: the kernel's available memory, or less if a control
// group limits this process.
double AvailableMemoryBytes();

// The state of the cards while a trial runs; nothing if there is no card.
std::optional<CardStates> DescribeGpus(const GpuReport& report);

// The source state of the checkout at `root`, or, for an archive (scripts/bundle), of its
// archive.json.
SourceState DescribeSource(const std::string& root);

// The environment variables that a trial records, if they are set.
const std::vector<const char*>& DescribedVariables();
std::map<std::string, std::string> DescribeEnvironment();

// The image of the container of this process: SPARFUSE_IMAGE, else the name from podman
// (/run/.containerenv: "NAME@ID" if it has one) or Apptainer (the file's name). "unknown" in a
// container that does not name its image; "" outside of containers. root: the folder that replaces
// / in the search.
std::string ContainerImage(const std::filesystem::path& root = "/");

// The output of a shell command without its last line end; `ok` is false if it failed.
std::string CommandOutput(const std::string& command, bool& ok);
std::string ShellQuoted(const std::string& text);

}  // namespace sparfuse::harness
