// Lists the parts that the module knows: core's sparsifiers and quantizers, and sparsifiers
// registered from Python.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/options.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse::python {

// A sparsifier with its options; the selections of one or several objects share it.
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

// sparsifier: a class or an object. A class is made anew for every ConfigureSparsifier, with the
// options as keywords; an object takes no options. Replaces an earlier registration from Python
// under that name. Throws Error{kConfig} if core has the name, if there is no method select, or if
// KeepsMemory throws.
void RegisterSparsifier(const std::string& name, pybind11::object sparsifier);

pybind11::list ListSparsifiers();

// A quantizer with its options; the encodings of one or several objects share it.
struct ConfiguredQuantizer {
  std::unique_ptr<Quantizer> quantizer;
  std::uint64_t seed;
  int rank;                   // of the worker
  pybind11::dict descriptor;  // as in ListQuantizers
  pybind11::dict options;     // defaults included
};

// rank: at least 0. Throws Error{kConfig} as ConfigureSparsifier.
std::shared_ptr<const ConfiguredQuantizer> ConfigureQuantizer(const std::string& name,
                                                              std::uint64_t seed, int rank,
                                                              const pybind11::dict& options);

pybind11::list ListQuantizers();

// Keywords of Python as options. Throws Error{kConfig} naming `owner` and the key if a value is no
// bool, number or string.
Options ToOptions(const std::string& owner, const pybind11::dict& keywords);
pybind11::object ToPython(const OptionValue& value);
// Dicts of name, default, range, choices and meaning.
pybind11::list DescribeOptions(std::span<const OptionSpec> options);
// Throws Error{kConfig} naming the nearest known option and all known ones.
void RequireKnown(const std::string& owner, const pybind11::dict& keywords,
                  const std::vector<std::string>& known);

// sparfuse.CLASS('name', first, option=value, ...)
std::string ReprText(const char* type, const pybind11::dict& descriptor, const std::string& first,
                     const pybind11::dict& options);

}  // namespace sparfuse::python
