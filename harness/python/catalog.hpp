// The sparsifiers that the module knows: core's table, and those registered from Python.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// A sparsifier with its options: what the selections of one or several objects share.
struct ConfiguredSparsifier {
  std::unique_ptr<Sparsifier> sparsifier;
  std::atomic<double> density;
  std::uint64_t seed;
  bool unbounded_count;       // as in SparsifierDescriptor
  pybind11::dict descriptor;  // as in ListSparsifiers
  pybind11::dict options;     // defaults included
};

// Throws Error{kConfig} if density is not in (0, 1].
double CheckedDensity(double density);

// Throws Error{kConfig} naming the nearest known name and, for an unknown option, all known ones.
std::shared_ptr<ConfiguredSparsifier> ConfigureSparsifier(const std::string& name, double density,
                                                          std::uint64_t seed,
                                                          const pybind11::dict& options);

// sparsifier: a class, made anew for every ConfigureSparsifier with the options as keywords, or an
// object, which takes no options. Replaces what was registered from Python under that name. Throws
// Error{kConfig} if core has the name, or there is no method select.
void RegisterSparsifier(const std::string& name, pybind11::object sparsifier);

pybind11::list ListSparsifiers();

}  // namespace sparfuse
