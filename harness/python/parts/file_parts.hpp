// Lets methods of this module be made of classes in Python files, "python:FILE.py:Class", and of
// plugins, "library:FILE.so:NAME".
#pragma once

#include <string>

#include "harness/python/parts/part_class.hpp"

namespace sparfuse::python {

// Reads FILE from the current folder. Throws Error{kConfig} naming the file if it does not exist.
PartSource ReadPartFile(const std::string& kind, const std::string& name);

// From now on FindPlanner and its like find them, with the GIL or without. A file that was edited
// is another part.
void FindPartsInFiles();

}  // namespace sparfuse::python
