// Finds parts of methods in Python files and in plugins. An experiment file says
// "python:FILE.py:ClassName" or "library:FILE.so:NAME". A cell's configuration has the class, or
// NAME, and the head of the hash of the file's content, "python:ClassName@0123456789ab". The hash
// of a Python file covers the modules of its folder that it imports. An edited file makes another
// cell, a moved file does not.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/outside_parts.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// Where a part that is written in Python comes from.
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

// Raised if the results of these parts may change though their files do not.
inline constexpr int kOutsidePartRevision = 1;

// Turns the words of an experiment file in `folder` into the words of its cells. The process then
// knows the file of this name. kind: "planner", for errors. Throws Error{kConfig} if the file, or
// the class in it, is missing, and names it.
std::string OutsidePartName(std::string_view kind, std::string_view given,
                            const std::filesystem::path& folder);

// `given`, of a file in `folder`, with an absolute path. Throws Error{kConfig} for another form.
std::string WithFolder(std::string_view kind, std::string_view given,
                       const std::filesystem::path& folder);

// The file of a cell's part. Precondition: OutsidePartName returned the name in this process, or
// KnowPartFile got it.
std::filesystem::path FileOfPart(const std::string& name);
// Makes a file known. Then FindPlanner and its like also find the file's parts. They open the
// plugin, or start Python in this process, once. They throw Error{kConfig} if the file was edited
// since, if this build lacks the plugin, or if Python refuses the file or the class.
void KnowPartFile(const std::string& name, const std::filesystem::path& file);

struct PartOfCell {
  const char* kind;
  std::string name;
};
// The parts of a cell, or of a profile, that do not belong to this program.
std::vector<PartOfCell> OutsidePartsOf(const CellConfig& config);

// The files of a cell's parts, or of the parts that a profile measures, by name.
std::map<std::string, std::string> FilesOfParts(const CellConfig& config);

// How calls of parts in Python are watched from now on, in a process that has none yet.
void WatchPythonParts(PartWatch watch);

// The seconds that this process has spent in calls of parts so far.
double SecondsInPython();

// Whether `given`, of an experiment file, may mean the cell's `resolved`: the class is the same.
bool MeansOutsidePart(std::string_view given, std::string_view resolved);

// FindSparsifier that also knows these names. The properties of an outside sparsifier are known
// only after it was made, with its options as keywords of the class's constructor.
const SparsifierDescriptor& ResolveSparsifier(const std::string& name);

}  // namespace sparfuse::harness
