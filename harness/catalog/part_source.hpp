// Describes where a part that is written in Python comes from, and how its calls are watched. It
// does not need Python.
#pragma once

#include <chrono>
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

// How calls of parts are watched that do not return (parts/part_call.hpp).
struct PartWatch {
  std::chrono::milliseconds deadline{0};  // of waits for other ranks; 0: as if it were 60 s
  std::string who;                        // "rank 1", in messages
};

}  // namespace sparfuse::harness
