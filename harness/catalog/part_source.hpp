// Describes where a part that is written in Python comes from. It does not need Python.
#pragma once

#include <filesystem>
#include <string>

namespace sparfuse::harness {

struct PartSource {
  std::string kind;   // "planner", "strategy", ...
  std::string name;   // of the part, in cells and records
  std::string shown;  // with its file, for errors: "python:FILE.py:Class"
  std::filesystem::path file;
  std::string text;  // of the file: it may be another by now
  std::string class_name;
};

}  // namespace sparfuse::harness
