// Makes the cells of a part from its axes: products, exclusions, defaults, impossible pairs, and
// methods that join the axes though the file does not name them (--with-method).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// A value of any key, as the file gives it, and the JSON pointer of its place in the file.
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

// Fills cells and excluded of `part`, from the tables at `pointer` ("" or "/part/2").
void ExpandCells(const CellSource& source, const std::string& pointer, const GivenKeys& defaults,
                 Part& part);

// One cell with every default resolved. Errors about a missing key name `at`. Other errors: unknown
// names, with the nearest known one, and pairs that make no sense, with the reason.
CellConfig ResolveCell(const CellSource& source, const std::string& at, const GivenKeys& given);

// Whether `given` has `wanted`, which is a value of any key, or a list with one that must fit. If
// `wanted` is a table, `given` must have all its keys, itself or in a table in it; an empty table
// matches only an empty one.
bool Matches(const nlohmann::json& wanted, const nlohmann::json& given);

// Adds `joined` to the lists of methods with which a figure, as given, chooses its cells.
void JoinFigure(std::span<const std::string> joined, nlohmann::json& figure);

}  // namespace sparfuse::harness
