// Finds what a Python file imports from its own folder, without running it.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace sparfuse {

struct PythonImports {
  // {file: content} of the modules NAME.py and the packages NAME/ beside the file that it imports,
  // and that these import from there. A package has all its .py files.
  std::map<std::filesystem::path, std::string> files;
  // Sorted: the modules, and packages with an __init__.py, that are imported; first components
  // alone.
  std::vector<std::string> names;
  std::vector<std::string> late;  // those of `names` that a function imports when it is called
};

// text: the content of the file. Reads statements `import` and `from`, not calls of importlib. A
// file that cannot be read is left out.
PythonImports ImportsOf(const std::filesystem::path& file, const std::string& text);

// What a hash of the file covers: its text alone, or, with imports from its folder, also their
// names and contents.
std::string TextWithImports(const std::filesystem::path& file, const std::string& text);

}  // namespace sparfuse
