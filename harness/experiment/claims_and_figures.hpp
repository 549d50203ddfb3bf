// Reads the [[claim]] and [[figure]] tables of a part.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/published/published.hpp"

namespace sparfuse::harness {

// Fills claims of `part`, whose tables are at `pointer` ("" or "/part/2") and whose cells are
// there. Errors: Error{kConfig} with file, line, key and what was expected.
void ReadClaims(const TomlFile& file, const std::string& pointer, Part& part);

struct FigureKind {
  std::string name;
  std::string summary;
  std::vector<std::string> keys;  // beside those that every kind has
  // What a paper's number must be called to stand beside ours: "" takes every metric of the
  // artifact, "y" the one that the figure shows. Nothing: the kind shows no published value.
  std::optional<std::string> published;
};
const std::vector<FigureKind>& FigureKinds();

// Checks the entries at `pointer` ("" or "/part/2") and fills part.figures, whose cells are known;
// docs/experiments/claims-and-figures.md, "Figures", has the keys. Each entry gets `cells`, the
// positions of the cells that it shows, and the published rows that it draws if it asks for some.
// Throws Error{kConfig}.
void ReadFigures(const TomlFile& file, const std::string& pointer,
                 const std::optional<Published>& published, Part& part);

}  // namespace sparfuse::harness
