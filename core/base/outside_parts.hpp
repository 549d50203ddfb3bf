// Finds parts from outside this program's tables: classes of Python files, whose names begin with
// "python:", and parts of plugins, whose names begin with "library:".
#pragma once

#include <string>
#include <string_view>

namespace sparfuse {

inline constexpr std::string_view kPythonPrefix = "python:";
inline constexpr std::string_view kLibraryPrefix = "library:";
inline bool IsPythonPart(std::string_view name) { return name.starts_with(kPythonPrefix); }
inline bool IsLibraryPart(std::string_view name) { return name.starts_with(kLibraryPrefix); }
inline bool IsOutsidePart(std::string_view name) {
  return IsPythonPart(name) || IsLibraryPart(name);
}

// The components of a name: "python:FILE.py:Class" or "library:FILE.so:NAME"; in cells
// "python:Class@HASH" or "library:NAME@HASH".
struct OutsideName {
  std::string_view prefix;
  std::string file;  // empty in cells
  std::string part;  // the class, or the name that the plugin gives it
  std::string hash;  // of the file's content; empty except in cells
};
// Throws Error{kConfig} naming `kind`, the name and the expected form.
OutsideName ParseOutsideName(std::string_view kind, std::string_view name);

// Finds outside parts of one kind. A program that can run such parts sets their finder once, before
// any search. In other programs their names are unknown.
template <class Descriptor>
class OutsideParts {
 public:
  // The returned descriptor lives as long as the program. Throws Error{kConfig} naming the missing
  // file or part.
  using Finder = const Descriptor& (*)(const std::string& name);

  static void SetFinder(Finder finder) { finder_ = finder; }
  // Null for a name of another form, or if the program has no finder.
  static const Descriptor* Find(std::string_view name) {
    return finder_ == nullptr || !IsOutsidePart(name) ? nullptr : &finder_(std::string(name));
  }

 private:
  static inline Finder finder_ = nullptr;
};

}  // namespace sparfuse
