// Makes the cells of a part from its axes: products, exclusions, defaults, impossible pairs, and
// methods that join the axes though the file does not name them (--with-method).
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// A value of any key, as the file gives it, and the JSON pointer of where it stands there.
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

// Whether `wanted` (a value of any key, or a list of which one must fit) is what `given` has. A
// table must have what the wanted one has, itself or in a table in it; an empty one is only itself.
bool Matches(const nlohmann::json& wanted, const nlohmann::json& given);

// Where the axis at `pointer` lists methods: a row for each of `joined` that it lacks, which is
// also added to `axis`, the table as figures read it. Keys beside the method that belong to a
// method (its options, its sparsifier, feedback) are left to its defaults; of others the new method
// takes each combination that the axis has.
void JoinMethods(std::span<const std::string> joined, const std::string& pointer,
                 std::vector<GivenKeys>& rows, nlohmann::json& axis);

// Adds `joined` to the lists of methods by which a figure, as given, chooses its cells.
void JoinFigure(std::span<const std::string> joined, nlohmann::json& figure);

}  // namespace sparfuse::harness
