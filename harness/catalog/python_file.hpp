// Sparsifiers written in Python. An experiment file says "python:FILE.py:ClassName"; a cell's
// configuration has the file's absolute path and the head of its content's hash behind it,
// "python:/folder/FILE.py:ClassName@0123456789ab", so that an edited file is another cell.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse::harness {

// Raised when the results of sparsifiers written in Python may change though their files do not.
inline constexpr int kPythonSparsifierRevision = 1;

inline bool IsPythonSparsifier(std::string_view name) { return name.starts_with("python:"); }

// From what an experiment file in `folder` says to what its cells say. Throws Error{kConfig} naming
// what is missing: the file, or the class in it.
std::string PythonSparsifierName(std::string_view given, const std::filesystem::path& folder);

// Whether `given`, of an experiment file, may mean the cell's `resolved`.
bool MeansPythonSparsifier(std::string_view given, std::string_view resolved);

// FindSparsifier for these names too. Making one starts Python in this process, once; its options
// are keywords of the class's constructor. Making throws Error{kConfig} where the file was edited
// since, this build lacks the plugin, or Python refuses the file, the class or the keywords.
const SparsifierDescriptor& ResolveSparsifier(const std::string& name);

}  // namespace sparfuse::harness
