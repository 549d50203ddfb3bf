// Holds the program's catalog, for tests of imports.
#pragma once

#include "harness/catalog/catalog.hpp"

namespace sparfuse::harness {

inline const Catalog& OurCatalog() {
  static const Catalog kCatalog = BuiltInCatalog();
  return kCatalog;
}

}  // namespace sparfuse::harness
