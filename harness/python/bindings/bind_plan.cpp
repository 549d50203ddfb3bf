// Binds plan, which runs the solvers of published planners on declared times.
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "baselines/cupcake/cupcake.hpp"
#include "baselines/espresso/espresso_planner.hpp"
#include "baselines/hipress/secopa.hpp"
#include "baselines/mg-wfbp/mg_wfbp.hpp"
#include "baselines/omgs/omgs.hpp"
#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/bindings/given.hpp"
#include "harness/python/catalog.hpp"
#include "harness/python/configured_method.hpp"
#include "harness/python/module.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// Keywords that every solver accepts, even if it ignores them.
const std::vector<std::string> kCommonKeywords = {"layout", "backward_seconds", "world_size",
                                                  "alpha", "beta"};

// The keywords of a call. Each is checked when it is read. None counts as missing.
class PlanKeywords {
 public:
  // Throws Error{kConfig} for a keyword that is neither common nor among `options`.
  PlanKeywords(const std::string& solver, std::vector<std::string> options, const py::dict& given)
      : owner_("plan " + solver), given_(given) {
    options.insert(options.begin(), kCommonKeywords.begin(), kCommonKeywords.end());
    RequireKnown(owner_, given, options);
    // These are checked even if the solver ignores them.
    if (Find("world_size")) WorldSize();
    for (const char* key : {"alpha", "beta"}) {
      if (Find(key)) NotNegative(key);
    }
    if (Find("backward_seconds") && Find("layout")) BackwardSeconds(Elements().size());
  }

  double NotNegative(const char* key) const {
    return CheckedNotNegative(key, Need(key, kNotNegative));
  }

  double Density() const {
    static constexpr const char* kExpected = "a number in (0, 1]";
    const py::object value = Need("density", kExpected);
    const double density = ReadNumber("density", value, kExpected);
    if (!(density > 0 && density <= 1)) Refuse("density", value, kExpected);
    return density;
  }

  int WorldSize() const { return Count("world_size", "an integer of at least 1: how many ranks"); }

  int Count(const char* key, const char* expected) const {
    const py::object value = Need(key, expected);
    if (PyIndex_Check(value.ptr()) == 0) ThrowType(key, value, expected);
    constexpr long long kMost = 1 << 30;
    int overflow = 0;
    const long long count = PyLong_AsLongLongAndOverflow(py::int_(value).ptr(), &overflow);
    if (overflow != 0 || count < 1 || count > kMost) Refuse(key, value, expected);
    return static_cast<int>(count);
  }

  // False if it is missing.
  bool Flag(const char* key) const {
    const auto value = Find(key);
    if (!value) return false;
    if (!py::isinstance<py::bool_>(*value)) ThrowType(key, *value, "True or False");
    return value->cast<bool>();
  }

  // The index in `names` of a string that must be one of them.
  std::size_t OneOf(const char* key, const std::vector<std::string>& names) const {
    std::string expected = "one of";
    for (const std::string& name : names)
      expected += (&name == names.data() ? " \"" : ", \"") + name + "\"";
    const py::object value = Need(key, expected.c_str());
    if (!py::isinstance<py::str>(value)) ThrowType(key, value, expected.c_str());
    const auto found = std::ranges::find(names, value.cast<std::string>());
    if (found == names.end()) Refuse(key, value, expected.c_str());
    return static_cast<std::size_t>(found - names.begin());
  }

  std::vector<std::size_t> Elements() const {
    static constexpr const char* kExpected =
        "(name, shape) of each tensor, in the order in which backward produces gradients";
    py::object value = Need("layout", kExpected);
    if (!py::isinstance<py::iterable>(value)) ThrowType("layout", value, kExpected);
    if (py::hasattr(value, "items")) value = value.attr("items")();
    std::vector<std::pair<std::string, py::object>> tensors;
    try {
      tensors = py::list(value).cast<std::vector<std::pair<std::string, py::object>>>();
    } catch (const py::cast_error&) {
      ThrowType("layout", given_["layout"], kExpected);
    }
    std::vector<std::size_t> elements;
    try {
      for (const TensorShape& tensor : ReadTensors(tensors)) elements.push_back(tensor.numel);
    } catch (const Error& error) {
      throw Error(error.kind(), owner_ + ": " + error.what());
    }
    return elements;
  }

  std::vector<double> BackwardSeconds(std::size_t tensors) const {
    const std::string each =
        "a number of seconds for each of the " + std::to_string(tensors) + " tensors of the layout";
    const py::object value = Need("backward_seconds", each.c_str());
    if (!py::isinstance<py::iterable>(value)) ThrowType("backward_seconds", value, each.c_str());
    std::vector<double> seconds;
    for (const py::handle number : py::list(value)) {
      const std::string at = "backward_seconds[" + std::to_string(seconds.size()) + "]";
      seconds.push_back(CheckedNotNegative(at.c_str(), py::reinterpret_borrow<py::object>(number)));
    }
    SPARFUSE_REQUIRE(seconds.size() == tensors, owner_ + ": backward_seconds has " +
                                                    std::to_string(seconds.size()) +
                                                    " numbers; expected " + each);
    return seconds;
  }

 private:
  static constexpr const char* kNotNegative = "a finite number of at least 0";

  std::optional<py::object> Find(const char* key) const {
    if (!given_.contains(key) || given_[key].is_none()) return std::nullopt;
    return py::object(given_[key]);
  }

  py::object Need(const char* key, const char* expected) const {
    const auto value = Find(key);
    SPARFUSE_REQUIRE(value.has_value(), owner_ + ": " + key + " is missing; expected " + expected);
    return *value;
  }

  double CheckedNotNegative(const char* key, const py::object& value) const {
    const double number = ReadNumber(key, value, kNotNegative);
    if (!std::isfinite(number) || number < 0) Refuse(key, value, kNotNegative);
    return number;
  }

  double ReadNumber(const char* key, const py::object& value, const char* expected) const {
    if (py::isinstance<py::bool_>(value) || PyNumber_Check(value.ptr()) == 0) {
      ThrowType(key, value, expected);
    }
    try {
      return value.cast<double>();
    } catch (const py::cast_error&) {
      ThrowType(key, value, expected);
    }
  }

  [[noreturn]] void Refuse(const char* key, const py::object& value, const char* expected) const {
    SPARFUSE_THROW(kConfig, Text(key, value, expected));
  }
  [[noreturn]] void ThrowType(const char* key, const py::object& value,
                              const char* expected) const {
    throw py::type_error(Text(key, value, expected));
  }
  std::string Text(const char* key, const py::object& value, const char* expected) const {
    return owner_ + ": " + key + " = " + py::cast<std::string>(py::str(value)) + ": expected " +
           expected;
  }

  std::string owner_;
  py::dict given_;
};

using Sizes = std::vector<std::size_t>;

Sizes UnitsOfMgWfbp(const PlanKeywords& given, const ReadyTensors& tensors) {
  const double alpha = given.NotNegative("alpha"), beta = given.NotNegative("beta");
  const GilReleased no_gil;
  return baselines::MgWfbpUnits(tensors, {alpha, beta});
}

Sizes UnitsOfOmgs(const PlanKeywords& given, const ReadyTensors& tensors) {
  const double topk_seconds = given.NotNegative("topk_seconds");
  const baselines::OmgsAllGathers exchange{given.NotNegative("alpha"), given.NotNegative("beta"),
                                           given.Density(), given.WorldSize()};
  const GilReleased no_gil;
  return baselines::OmgsUnits(
      tensors,
      [&](std::size_t elements) { return baselines::OmgsSelectionSeconds(topk_seconds, elements); },
      exchange);
}

Sizes UnitsOfCupcake(const PlanKeywords& given, const ReadyTensors& tensors) {
  const auto line = [&](const char* constant, const char* slope) {
    return [a = given.NotNegative(constant), b = given.NotNegative(slope)](std::size_t elements) {
      return a + b * static_cast<double>(elements);
    };
  };
  const auto select = line("compress_alpha", "compress_beta"), send = line("alpha", "beta");
  const GilReleased no_gil;
  return baselines::CupcakeUnits(tensors, select, send,
                                 baselines::CupcakeSelection::kBesideBackward);
}

std::vector<int> OptionsOfEspresso(const PlanKeywords& given, const ReadyTensors& tensors) {
  using Compressor = baselines::EspressoCompressor;
  baselines::EspressoSetting setting;
  setting.compressor =
      static_cast<Compressor>(given.OneOf("compressor", {"randomk", "dgc", "efsignsgd", "onebit"}));
  if (setting.compressor == Compressor::kRandomK || setting.compressor == Compressor::kDgc) {
    setting.density = given.Density();
  }
  setting.gpus_per_node =
      given.Count("gpus_per_node", "an integer of at least 1: the cards of a node");
  const int ranks = given.WorldSize();
  SPARFUSE_REQUIRE(
      ranks % setting.gpus_per_node == 0,
      "plan espresso: world_size = " + std::to_string(ranks) +
          ": expected a multiple of gpus_per_node = " + std::to_string(setting.gpus_per_node));
  setting.nodes = ranks / setting.gpus_per_node;
  setting.nvlink = given.Flag("nvlink");
  setting.cpu = given.Flag("cpu");
  setting.two_level = given.Flag("two_level");
  setting.mod1000 = given.Flag("mod1000");
  const GilReleased no_gil;
  return baselines::EspressoOptions(tensors, setting);
}

std::vector<std::pair<std::string, int>> DecisionsOfHipress(const PlanKeywords& given) {
  const auto topology = given.OneOf("topology", {"PS", "RING"}) == 0
                            ? baselines::SecopaTopology::kServers
                            : baselines::SecopaTopology::kRing;
  const int nodes = given.WorldSize();
  const Sizes tensors = given.Elements();
  std::vector<std::pair<std::string, int>> decisions;
  const GilReleased no_gil;
  for (const std::size_t elements : tensors) {
    const auto [compress, partitions] = baselines::SecopaDecide(topology, nodes, elements);
    decisions.emplace_back(compress ? "y" : "n", partitions);
  }
  return decisions;
}

struct Solver {
  std::string name;
  std::vector<std::string> options;
  std::function<py::object(const PlanKeywords&)> solve;
};

// Wraps a solver that uses the times at which gradients are ready.
template <class Solve>
auto OfReadyTensors(const Solve& solve) {
  return [solve](const PlanKeywords& given) -> py::object {
    const Sizes elements = given.Elements();
    const std::vector<double> seconds = given.BackwardSeconds(elements.size());
    return py::cast(solve(given, ReadyTensors{elements, seconds}));
  };
}

const std::vector<Solver> kSolvers = {
    {"mg-wfbp", {}, OfReadyTensors(&UnitsOfMgWfbp)},
    {"omgs", {"density", "topk_seconds"}, OfReadyTensors(&UnitsOfOmgs)},
    {"cupcake", {"compress_alpha", "compress_beta"}, OfReadyTensors(&UnitsOfCupcake)},
    {"espresso",
     {"gpus_per_node", "compressor", "density", "nvlink", "cpu", "two_level", "mod1000"},
     OfReadyTensors(&OptionsOfEspresso)},
    {"hipress",
     {"topology"},
     [](const PlanKeywords& given) -> py::object { return py::cast(DecisionsOfHipress(given)); }},
};

// more: accepted only to refuse it by name. pybind11 would print no more than the signature.
py::object PlanOf(const Given<"name", std::string>& given, const py::args& more,
                  const py::kwargs& keywords) {
  const std::string& name = given;
  if (!more.empty()) {
    std::string text = "plan: " + std::to_string(more.size() + 1) +
                       " arguments without a keyword: expected the name alone, and";
    for (const std::string& keyword : kCommonKeywords)
      text += (&keyword == kCommonKeywords.data() ? " " : ", ") + keyword + "=...";
    throw py::type_error(text);
  }
  std::vector<std::string> known;
  for (const Solver& solver : kSolvers) {
    known.push_back(solver.name);
    if (solver.name == name) return solver.solve(PlanKeywords(name, solver.options, keywords));
  }
  SPARFUSE_THROW(kConfig, "plan: unknown planner \"" + name + "\"" + Suggestion(name, known));
}

}  // namespace

void BindPlan(py::module_& module) {
  module.def("plan", &PlanOf, py::arg("name"),
             R"(The decisions of a published planner for a model, in ready order.

The planner's own algorithm with times that are given; it needs no method and measures nothing. Of
"mg-wfbp", "omgs" and "cupcake" it gives the number of tensors of each unit; the numbers add up to
the tensors of the layout. Of "espresso" it gives the runtime's option, 0 to 14, of each tensor; of
"hipress" whether a tensor is compressed, "y" or "n", and in how many partitions. All arguments but
the name are keywords.

name              "mg-wfbp", "omgs", "cupcake", "espresso" or "hipress"
layout            (name, shape) of each tensor, or a dict of them, in ready order: the order in
                  which backward produces gradients, the last layer first
backward_seconds  seconds of backward of each tensor, in that order: since the gradient before it
world_size        how many ranks; omgs, espresso, and of hipress nodes: 4, 8 or 16
alpha, beta       time of an exchange: start-up seconds, and seconds for each byte or, for
                  cupcake, element; espresso and hipress ignore both, since their constants are
                  published

mg-wfbp   An all-reduce of M bytes, 4 an element, takes alpha + beta M. Merges the next gradient
          if waiting for it costs less than alpha, as Shi, Chu and Li, MG-WFBP, INFOCOM 2019.
          Never later than a unit for each tensor; not always the earliest partition of all.
omgs      density in (0, 1], topk_seconds S: selecting among x elements takes S x log2(x), on the
          lane of backward; the all-gathers of values and indices take
          2 (alpha + beta 4 world_size density x). Merges if that delays less than it saves, as
          Shi et al., OMGS-SGD, INFOCOM 2020.
cupcake   compress_alpha, compress_beta: selecting among x elements takes
          compress_alpha + compress_beta x, beside backward; sending them alpha + beta x. One unit,
          or two with the boundary for which the last one is sent earliest, as Wang et al., Cupcake,
          MLSys 2023.
espresso  compressor "randomk" or "dgc", with density, "efsignsgd" or "onebit"; world_size ranks,
          gpus_per_node on each node. nvlink within nodes instead of PCIe, cpu: processors may
          compress, too, two_level: also before the exchange within nodes; mod1000 takes gaps modulo
          1000 us as the published code does. All four are False by default. Gaps are
          backward_seconds in whole microseconds, the first 0. With cpu all choices of tensors for
          processors are tried, up to 2^20 of them; if there are more, one size of tensors after
          another, which may miss the best. As Wang et al., Espresso, EuroSys 2023.
hipress   topology "PS" or "RING"; looks at no times. As Bai et al., HiPress, SOSP 2021.

Of layout, backward_seconds, world_size, alpha and beta, keywords that the planner ignores may be
left out; if given, they are checked. Other threads of Python go on while it plans. Raises
ConfigError, naming keyword, value and what was expected: for an unknown name or keyword, a missing
keyword, more or fewer seconds than tensors, a negative or infinite number. Raises TypeError for a
value that is no number.

>>> import sparfuse
>>> layout = [("fc3", (10, 512)), ("fc2", (512, 512)), ("fc1", (512, 784))]
>>> seconds = [0.0001, 0.0004, 0.0006]
>>> sparfuse.plan("mg-wfbp", layout=layout, backward_seconds=seconds, alpha=5e-4, beta=1e-9)
[2, 1]
>>> times = dict(layout=layout, backward_seconds=seconds, alpha=5e-4, beta=1e-9)
>>> sparfuse.plan("omgs", world_size=4, density=0.01, topk_seconds=2e-10, **times)
[3]
>>> sparfuse.plan("cupcake", compress_alpha=3e-5, compress_beta=1e-10, **times)
[2, 1]
>>> sparfuse.plan("espresso", layout=layout, backward_seconds=seconds, world_size=32,
...               gpus_per_node=8, compressor="dgc", density=0.01)
[0, 1, 1]
>>> sparfuse.plan("hipress", layout=[("fc1", (4096, 4096))], topology="PS", world_size=4)
[('y', 4)]
>>> sparfuse.plan("mg-wfbp", **{**times, "alpha": -1})
Traceback (most recent call last):
    ...
sparfuse.ConfigError: plan mg-wfbp: alpha = -1: expected a finite number of at least 0
)");
}

}  // namespace sparfuse::python
