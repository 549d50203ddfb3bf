// Reads the [[figure]] entries of a part.
#pragma once

#include <optional>
#include <string>

#include "harness/experiment/experiment.hpp"
#include "harness/published/published_values.hpp"

namespace sparfuse::harness {

// Checks the entries at `pointer` ("" or "/part/2") and fills part.figures, whose cells are known;
// harness/README.md, "Figures", has the keys. Each entry gets `cells`, the positions of the cells
// that it shows, and the published rows that it draws where it asks for some. Throws
// Error{kConfig}.
void ReadFigures(const TomlFile& file, const std::string& pointer,
                 const std::optional<Published>& published, Part& part);

}  // namespace sparfuse::harness
