#include "harness/python/catalog.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "baselines/plugin_library.hpp"
#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "core/base/outside_parts.hpp"
#include "core/coding/quantizers/blocks.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/parts.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

// name -> {"object": class or object, "descriptor": dict}. Leaked, because the interpreter ends
// before static objects.
py::dict& Registered() {
  static auto* const registered = new py::dict();
  return *registered;
}

bool InCore(std::string_view name) {
  return std::ranges::any_of(Sparsifiers(), [&](const SparsifierDescriptor& descriptor) {
    return descriptor.name == name ||
           std::ranges::find(descriptor.aliases, name) != descriptor.aliases.end();
  });
}

OptionValue ToOption(const std::string& where, py::handle value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<std::int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (py::hasattr(value, "item")) return ToOption(where, value.attr("item")());  // NumPy's scalars
  SPARFUSE_THROW(kConfig,
                 where + " is a " + TypeText(value) + "; expected a bool, int, float or str");
}

py::dict DescribeOption(const OptionSpec& option) {
  const py::object range = option.min == option.max
                               ? py::object(py::none())
                               : py::object(py::make_tuple(option.min, option.max));
  return py::dict("name"_a = option.name, "default"_a = ToPython(option.fallback),
                  "range"_a = range, "choices"_a = option.choices, "meaning"_a = option.meaning);
}

// The fields that every registered part describes.
template <class Descriptor>
py::dict DescribePart(const Descriptor& descriptor) {
  return py::dict("name"_a = descriptor.name, "paper"_a = descriptor.paper,
                  "deviations"_a = descriptor.deviations, "revision"_a = descriptor.revision,
                  "options"_a = DescribeOptions(descriptor.options));
}

py::dict Describe(const SparsifierDescriptor& descriptor) {
  py::dict entry = DescribePart(descriptor);
  entry["aliases"] = descriptor.aliases;
  entry["exact_count"] = descriptor.exact_count;
  entry["unbounded_count"] = descriptor.unbounded_count;
  entry["index_shared"] = descriptor.index_shared;
  entry["language"] = "C++";
  return entry;
}

py::dict Describe(const QuantizerDescriptor& descriptor) {
  py::dict entry = DescribePart(descriptor);
  entry["unbiased"] = descriptor.unbiased;
  entry["needs_feedback"] = descriptor.needs_feedback;
  return entry;
}

// The keywords of a class's constructor, without seed, as options.
py::list ConstructorOptions(const py::object& type) {
  py::list options;
  for (const Keyword& keyword : KeywordsOf(type)) {
    const py::object fallback = keyword.fallback.value_or(py::none());
    options.append(py::dict("name"_a = keyword.name, "default"_a = fallback, "range"_a = py::none(),
                            "choices"_a = py::list(), "meaning"_a = ""));
  }
  return options;
}

py::dict DescribePython(const std::string& name, const py::object& sparsifier) {
  const auto attribute = [&](const char* key, py::object fallback) -> py::object {
    return py::getattr(sparsifier, key, fallback);
  };
  const py::list options =
      PyType_Check(sparsifier.ptr()) != 0 ? ConstructorOptions(sparsifier) : py::list();
  return py::dict("name"_a = name, "aliases"_a = py::list(),
                  "paper"_a = attribute("paper", py::str("")),
                  "deviations"_a = attribute("deviations", py::str("")),
                  "revision"_a = attribute("revision", py::int_(1)),
                  "exact_count"_a = attribute("exact_count", py::bool_(true)),
                  "unbounded_count"_a = attribute("unbounded_count", py::bool_(false)),
                  "index_shared"_a = attribute("index_shared", py::bool_(false)),
                  "options"_a = options, "language"_a = "Python");
}

std::vector<std::string> OptionNames(const py::dict& descriptor) {
  std::vector<std::string> names;
  for (const py::handle option : descriptor["options"]) {
    names.push_back(option["name"].cast<std::string>());
  }
  return names;
}

// Makes a part of a core table with completed `options`, and describes it. kind: the kind's name in
// errors.
template <class Configured, class Descriptor>
auto MakeDescribed(const std::string& kind, Configured& configured, const Descriptor& descriptor,
                   const py::dict& options) {
  const std::string owner = kind + " " + std::string(descriptor.name);
  configured.descriptor = Describe(descriptor);
  RequireKnown(owner, options, OptionNames(configured.descriptor));
  const Options resolved = ResolveOptions(owner, descriptor.options, ToOptions(owner, options));
  for (const auto& [key, value] : resolved) configured.options[key.c_str()] = ToPython(value);
  return descriptor.make(resolved, configured.seed);
}

void ConfigurePython(ConfiguredSparsifier& configured, const std::string& name,
                     const py::dict& options) {
  const py::object entry = Registered()[name.c_str()];
  const py::object registered = entry["object"];
  configured.descriptor = entry["descriptor"].attr("copy")();
  std::vector<std::string> known = OptionNames(configured.descriptor);
  const bool takes_seed = std::erase(known, "seed") > 0;
  RequireKnown("sparsifier " + name, options, known);
  py::object object = registered;
  if (PyType_Check(registered.ptr()) != 0) {
    py::dict keywords = options.attr("copy")();
    if (takes_seed) keywords["seed"] = configured.seed;
    object = registered(**keywords);
  }
  for (const py::handle option : configured.descriptor["options"]) {
    const py::object key = option["name"];
    if (key.cast<std::string>() == "seed") continue;
    configured.options[key] = options.contains(key) ? options[key] : option["default"];
  }
  configured.sparsifier =
      WrapSparsifier(name, object, configured.descriptor["exact_count"].cast<bool>());
}

void ConfigureFile(ConfiguredSparsifier& configured, const std::string& name,
                   const py::dict& options) {
  const PartClass part(ReadPartFile("sparsifier", name), {"select(g, k)"});
  configured.descriptor = DescribePython(part.source().name, part.type());
  configured.options = options.attr("copy")();
  configured.sparsifier = SparsifierOf(part.source(), ToOptions(name, options), configured.seed);
}

}  // namespace

py::object ToPython(const OptionValue& value) {
  return std::visit([](const auto& held) -> py::object { return py::cast(held); }, value);
}

Options ToOptions(const std::string& owner, const py::dict& keywords) {
  Options options;
  for (const auto& [key, value] : keywords) {
    const auto option = py::cast<std::string>(key);
    options[option] = ToOption(owner + ": " + option, value);
  }
  return options;
}

py::list DescribeOptions(std::span<const OptionSpec> options) {
  py::list entries;
  for (const OptionSpec& option : options) entries.append(DescribeOption(option));
  return entries;
}

void RequireKnown(const std::string& owner, const py::dict& keywords,
                  const std::vector<std::string>& known) {
  for (const auto& [key, value] : keywords) {
    const auto option = key.cast<std::string>();
    if (std::ranges::find(known, option) != known.end()) continue;
    const std::string nearest = NearestName(option, known);
    std::string all;
    for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
    SPARFUSE_THROW(kConfig, owner + ": unknown option \"" + option + "\"" +
                                (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?") +
                                (all.empty() ? "; it takes none" : "; known: " + all));
  }
}

double CheckedDensity(double density) {
  SPARFUSE_REQUIRE(density > 0 && density <= 1,
                   "density = " + std::to_string(density) + ": expected a number in (0, 1]");
  return density;
}

std::shared_ptr<ConfiguredSparsifier> ConfigureSparsifier(const std::string& name, double density,
                                                          std::uint64_t seed,
                                                          const py::dict& options) {
  auto configured = std::make_shared<ConfiguredSparsifier>();
  configured->density = CheckedDensity(density);
  configured->seed = seed;
  if (Registered().contains(name.c_str())) {
    ConfigurePython(*configured, name, options);
  } else if (InCore(name)) {
    configured->sparsifier =
        MakeDescribed("sparsifier", *configured, FindSparsifier(name), options);
  } else if (IsLibraryPart(name)) {
    const OutsideName given = ParseOutsideName("sparsifier", name);
    configured->sparsifier = MakeDescribed(
        "sparsifier", *configured,
        FindInPlugin<SparsifierDescriptor>(std::filesystem::absolute(given.file), given.part, name),
        options);
  } else if (IsOutsidePart(name)) {
    ConfigureFile(*configured, name, options);
  } else {
    std::vector<std::string> known;
    for (const py::handle entry : ListSparsifiers()) {
      known.push_back(entry["name"].cast<std::string>());
      for (const py::handle alias : entry["aliases"]) known.push_back(alias.cast<std::string>());
    }
    SPARFUSE_THROW(kConfig, "unknown sparsifier \"" + name + "\"" + Suggestion(name, known));
  }
  configured->unbounded_count = configured->descriptor["unbounded_count"].cast<bool>();
  return configured;
}

void RegisterSparsifier(const std::string& name, py::object sparsifier) {
  SPARFUSE_REQUIRE(!name.empty(), "register_sparsifier: the name is empty");
  SPARFUSE_REQUIRE(!InCore(name), "register_sparsifier: \"" + name +
                                      "\" is a built-in sparsifier; choose another");
  py::dict entry;
  entry["descriptor"] = DescribePython(name, sparsifier);
  if (!py::hasattr(sparsifier, "select")) {
    SPARFUSE_THROW(kConfig, "register_sparsifier(\"" + name +
                                "\"): " + py::cast<std::string>(py::repr(sparsifier)) +
                                " has no method select(g, k)");
  }
  KeepsMemory(sparsifier, "register_sparsifier(\"" + name + "\")");
  entry["object"] = std::move(sparsifier);
  Registered()[name.c_str()] = entry;
}

py::list ListSparsifiers() {
  py::list list;
  for (const SparsifierDescriptor& descriptor : Sparsifiers()) list.append(Describe(descriptor));
  for (const auto& [name, entry] : Registered()) list.append(entry["descriptor"].attr("copy")());
  return list;
}

std::shared_ptr<const ConfiguredQuantizer> ConfigureQuantizer(const std::string& name,
                                                              std::uint64_t seed, int rank,
                                                              const py::dict& options) {
  auto configured = std::make_shared<ConfiguredQuantizer>();
  configured->seed = seed;
  configured->rank = rank;
  configured->quantizer = MakeDescribed("quantizer", *configured, FindQuantizer(name), options);
  return configured;
}

py::list ListQuantizers() {
  py::list list;
  for (const auto table : {Quantizers(), BlockQuantizers()}) {
    for (const QuantizerDescriptor& descriptor : table) list.append(Describe(descriptor));
  }
  return list;
}

std::string ReprText(const char* type, const py::dict& descriptor, const std::string& first,
                     const py::dict& options) {
  const auto repr = [](py::handle object) { return py::cast<std::string>(py::repr(object)); };
  std::string text =
      "sparfuse." + std::string(type) + "(" + repr(descriptor["name"]) + ", " + first;
  for (const auto& [key, value] : options) {
    text += ", " + py::cast<std::string>(key) + "=" + repr(value);
  }
  return text + ")";
}

}  // namespace sparfuse::python
