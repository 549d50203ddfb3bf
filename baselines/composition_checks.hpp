// Refuses parts of a method that do not fit one another.
#pragma once

#include "baselines/composition.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse {

// Throws Error{kConfig} naming the part or option that does not fit, and what was expected.
// `collective`: the one that the method names, of the two that `made` has.
void CheckParts(const Composition& made, const CollectiveDescriptor& collective);

}  // namespace sparfuse
