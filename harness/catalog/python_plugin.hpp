// Declares the plugin, which embeds Python, so that only processes that run a sparsifier written in
// Python load it. Opened with RTLD_GLOBAL: NumPy's own libraries look for the interpreter among
// global symbols.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/options.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse::harness {

struct PythonClass {
  std::string name;        // Sparsifier::name()
  std::string sparsifier;  // with its file, for errors
  std::filesystem::path file;
  std::string text;  // of the file
  std::string class_name;
  Options options;         // keywords of the constructor
  std::uint64_t seed = 0;  // another keyword, where the constructor has one of that name
};

inline constexpr const char* kPythonPlugin = "sparfuse_python_plugin.so";
inline constexpr const char* kMakePythonSparsifier = "SparfuseMakePythonSparsifier";

// The caller owns what is returned. Throws Error{kConfig}.
extern "C" using MakePythonSparsifier = Sparsifier * (const PythonClass& given);

}  // namespace sparfuse::harness
