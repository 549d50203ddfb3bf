// Finds parts that no table of this program has: classes of Python files, whose names begin with
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

// What a name says: "python:FILE.py:Class" or "library:FILE.so:NAME", in cells "python:Class@HASH"
// or "library:NAME@HASH".
struct OutsideName {
  std::string_view prefix;
  std::string file;  // empty in cells
  std::string part;  // the class, or the name that the plugin gives it
  std::string hash;  // of the file's content; empty but in cells
};
// Throws Error{kConfig} naming `kind`, the name and what was expected.
OutsideName ParseOutsideName(std::string_view kind, std::string_view name);

// Of one kind of part. A program that can run such parts says how they are found, once, before
// anything looks for one; in other programs their names are unknown ones.
template <class Descriptor>
class OutsideParts {
 public:
  // What it returns lives as long as the program. Throws Error{kConfig} naming what is missing.
  using Finder = const Descriptor& (*)(const std::string& name);

  static void SetFinder(Finder finder) { finder_ = finder; }
  // Null for a name of another form, and where the program has no such parts.
  static const Descriptor* Find(std::string_view name) {
    return finder_ == nullptr || !IsOutsidePart(name) ? nullptr : &finder_(std::string(name));
  }

 private:
  static inline Finder finder_ = nullptr;
};

}  // namespace sparfuse
