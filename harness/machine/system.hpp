// Describes this machine, on which live trials are measured, and its software.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"
#include "harness/records/machine.hpp"
#include "harness/records/node.hpp"

namespace sparfuse::harness {

// What makes a number comparable. The cores are those that this process may use; of cards there are
// models and counts: which card of a model it is and how fast it is clocked belong to a trial, not
// to the machine's identity.
Node DescribeMachine();
System DescribeSystem();

// Name of the host that this process is on.
std::string HostName();

// What programs may still take: what the kernel calls available, or less where a control group
// limits this process.
double AvailableMemoryBytes();

// The state of the cards while a trial runs; nothing where there is no card.
std::optional<CardStates> DescribeGpus(const GpuReport& report);

// Of the checkout at `root`; of an archive (scripts/bundle) what its archive.json says.
SourceState DescribeSource(const std::string& root);

// The environment variables that a trial's record has, where they are set.
const std::vector<const char*>& DescribedVariables();
std::map<std::string, std::string> DescribeEnvironment();

// The image of the container that this process runs in: SPARFUSE_IMAGE, else what podman
// (/run/.containerenv: "NAME@ID" where it tells) or Apptainer (the file's name) says; "unknown" in
// a container of which nobody says more; "" outside of one. root: where files of the system are
// looked for.
std::string ContainerImage(const std::filesystem::path& root = "/");

// Output of a shell command without its last line end; `ok` is false where it failed.
std::string CommandOutput(const std::string& command, bool& ok);
std::string ShellQuoted(const std::string& text);

}  // namespace sparfuse::harness
