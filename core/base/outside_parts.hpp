// Finds parts that no table of this program has: those whose names begin with "python:".
#pragma once

#include <string>
#include <string_view>

namespace sparfuse {

inline constexpr std::string_view kOutsidePrefix = "python:";
inline bool IsOutsidePart(std::string_view name) { return name.starts_with(kOutsidePrefix); }

// What a name says: "python:FILE.py:Class", or in cells "python:Class@HASH".
struct OutsideName {
  std::string file;  // empty in cells
  std::string class_name;
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
