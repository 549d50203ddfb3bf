// Reads the [[claim]] and [[figure]] tables of a part.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/published/published.hpp"

namespace sparfuse::harness {

// Fills claims of `part`, from the tables at `pointer` ("" or "/part/2"). The part's cells must be
// there. Errors: Error{kConfig} with file, line, key and the expected form.
void ReadClaims(const TomlFile& file, const std::string& pointer, Part& part);

struct FigureKind {
  std::string name;
  std::string summary;
  std::vector<std::string> keys;  // besides the keys of every kind
  // The metric of the paper's numbers that are drawn next to ours: "" takes every metric of the
  // artifact, "y" the metric of the figure. Nothing: the kind shows no published value.
  std::optional<std::string> published;
};
const std::vector<FigureKind>& FigureKinds();

// Checks the entries at `pointer` ("" or "/part/2") and fills part.figures. The part's cells must
// be known. docs/experiments/claims-and-figures.md, "Figures", has the keys. Each entry gets
// `cells`, the positions of its cells, and the published rows that it draws if it asks for some.
// Throws Error{kConfig}.
void ReadFigures(const TomlFile& file, const std::string& pointer,
                 const std::optional<Published>& published, Part& part);

}  // namespace sparfuse::harness
