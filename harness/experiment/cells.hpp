// Makes the cells of a part from its axes: products, exclusions, defaults, impossible pairs.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// A value and the JSON pointer of where it stands in the file.
struct GivenValue {
  nlohmann::json value;
  std::string pointer;
  bool joined = false;  // a method that the file does not name
};
using GivenKeys = std::map<std::string, GivenValue>;

struct CellSource {
  const TomlFile& file;
  const Catalog& catalog;
  const ProfileFolders& profiles;
  std::span<const std::string> joined = {};  // methods that join the axes
};

// The keys of the [defaults] table at `pointer`, each checked for name and type, over `inherited`.
GivenKeys ReadDefaults(const CellSource& source, const std::string& pointer, GivenKeys inherited);

// Fills cells and excluded of `part`, whose tables are at `pointer` ("" or "/part/2").
void ExpandCells(const CellSource& source, const std::string& pointer, const GivenKeys& defaults,
                 Part& part);

// One cell with every default resolved. `at` is named where a key that is missing makes the error.
// Errors: unknown names with the nearest known one; pairs that make no sense, with the reason.
CellConfig ResolveCell(const CellSource& source, const std::string& at, const GivenKeys& given);

// Whether `wanted` (a value, or a list of which one must fit) is what `given` has. A table must
// have what the wanted one has, itself or in a table in it; an empty one is only itself.
bool Matches(const nlohmann::json& wanted, const nlohmann::json& given);

}  // namespace sparfuse::harness
