// Finds parts that installed Python packages name: entry points of the group `sparfuse.parts`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sparfuse::harness {

struct InstalledPart {
  std::string name;
  std::string part;     // "python:FILE.py:Class", or "" if the entry point names no class
  std::string value;    // of the entry point
  std::string package;  // "mypackage 1.0"
};

// Asks `python` the first time, which takes a fifth of a second. Empty if Python does not start.
const std::vector<InstalledPart>& InstalledParts(const std::filesystem::path& python);

}  // namespace sparfuse::harness
