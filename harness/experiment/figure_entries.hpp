// The [[figure]] entries of a part.
#pragma once

#include <optional>
#include <string>

#include "harness/experiment/experiment.hpp"
#include "harness/published/published_values.hpp"

namespace sparfuse::harness {

// Checks the entries at `pointer` ("" or "/part/2") and fills part.figures, whose cells are known;
// harness/README.md, "Figures", has the keys. Where an entry asks for published values it gets the
// rows that it draws. Throws Error{kConfig}.
void ReadFigures(const TomlFile& file, const std::string& pointer,
                 const std::optional<Published>& published, Part& part);

}  // namespace sparfuse::harness
