// Binds plan: the units that solvers of published planners make of declared times.
#include <pybind11/stl.h>

#include <cmath>
#include <functional>
#include <optional>

#include "baselines/cupcake/cupcake_solver.hpp"
#include "baselines/mg-wfbp/mg_wfbp_solver.hpp"
#include "baselines/omgs/omgs_solver.hpp"
#include "core/base/error.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/bindings/bindings.hpp"
#include "harness/python/catalog.hpp"
#include "harness/python/layout.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// Keywords that every solver may be given, whether it looks at them or not.
const std::vector<std::string> kCommonKeywords = {"layout", "backward_seconds", "world_size",
                                                  "alpha", "beta"};

// The keywords of a call, each checked when it is read. None is as good as missing.
class PlanKeywords {
 public:
  // Throws Error{kConfig} for a keyword that is neither common nor among `options`.
  PlanKeywords(const std::string& solver, std::vector<std::string> options, const py::dict& given)
      : owner_("plan " + solver), given_(given) {
    options.insert(options.begin(), kCommonKeywords.begin(), kCommonKeywords.end());
    RequireKnown(owner_, given, options);
    if (Find("world_size")) WorldSize();
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

  int WorldSize() const {
    static constexpr const char* kExpected = "an integer of at least 1: how many ranks";
    const py::object value = Need("world_size", kExpected);
    if (PyIndex_Check(value.ptr()) == 0) ThrowType("world_size", value, kExpected);
    constexpr long long kMost = 1 << 30;
    int overflow = 0;
    const long long ranks = PyLong_AsLongLongAndOverflow(py::int_(value).ptr(), &overflow);
    if (overflow != 0 || ranks < 1 || ranks > kMost) Refuse("world_size", value, kExpected);
    return static_cast<int>(ranks);
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

struct Solver {
  std::string name;
  std::vector<std::string> options;
  std::function<std::vector<std::size_t>(const PlanKeywords&, const ReadyTensors&)> units;
};

std::vector<std::size_t> UnitsOfMgWfbp(const PlanKeywords& given, const ReadyTensors& tensors) {
  return baselines::MgWfbpUnits(tensors, {given.NotNegative("alpha"), given.NotNegative("beta")});
}

std::vector<std::size_t> UnitsOfOmgs(const PlanKeywords& given, const ReadyTensors& tensors) {
  const double topk_seconds = given.NotNegative("topk_seconds");
  const baselines::OmgsAllGathers exchange{given.NotNegative("alpha"), given.NotNegative("beta"),
                                           given.Density(), given.WorldSize()};
  return baselines::OmgsUnits(
      tensors,
      [&](std::size_t elements) { return baselines::OmgsSelectionSeconds(topk_seconds, elements); },
      exchange);
}

std::vector<std::size_t> UnitsOfCupcake(const PlanKeywords& given, const ReadyTensors& tensors) {
  const auto line = [&](const char* constant, const char* slope) {
    return [a = given.NotNegative(constant), b = given.NotNegative(slope)](std::size_t elements) {
      return a + b * static_cast<double>(elements);
    };
  };
  return baselines::CupcakeUnits(tensors, line("compress_alpha", "compress_beta"),
                                 line("alpha", "beta"),
                                 baselines::CupcakeSelection::kBesideBackward);
}

const std::vector<Solver> kSolvers = {
    {"mg-wfbp", {}, &UnitsOfMgWfbp},
    {"omgs", {"density", "topk_seconds"}, &UnitsOfOmgs},
    {"cupcake", {"compress_alpha", "compress_beta"}, &UnitsOfCupcake},
};

std::vector<std::size_t> PlanUnits(const std::string& name, const py::kwargs& keywords) {
  std::vector<std::string> known;
  for (const Solver& solver : kSolvers) {
    known.push_back(solver.name);
    if (solver.name != name) continue;
    const PlanKeywords given(name, solver.options, keywords);
    const std::vector<std::size_t> elements = given.Elements();
    const std::vector<double> seconds = given.BackwardSeconds(elements.size());
    return solver.units(given, {elements, seconds});
  }
  SPARFUSE_THROW(kConfig, "plan: unknown planner \"" + name + "\"" + Suggestion(name, known));
}

}  // namespace

void BindPlan(py::module_& module) {
  module.def("plan", &PlanUnits, py::arg("name"),
             R"(How many tensors each unit has that a published planner makes, in ready order.

The planner's own algorithm with times that are given; it needs no method and measures nothing. The
numbers add up to the tensors of the layout. All arguments but the name are keywords.

name              "mg-wfbp", "omgs" or "cupcake"
layout            (name, shape) of each tensor, or a dict of them, in ready order: the order in
                  which backward produces gradients, the last layer first
backward_seconds  seconds of backward of each tensor, in that order: since the gradient before it
world_size        how many ranks; omgs
alpha, beta       what an exchange takes: start-up seconds, and seconds for each byte or, for
                  cupcake, element

mg-wfbp   An all-reduce of M bytes, 4 an element, takes alpha + beta M. Merges the next gradient
          where waiting for it costs less than alpha, as Shi, Chu and Li, MG-WFBP, INFOCOM 2019.
          Never later than a unit for each tensor; not always the earliest partition of all.
omgs      density in (0, 1], topk_seconds S: selecting among x elements takes S x log2(x), on the
          lane of backward; the all-gathers of values and indices take
          2 (alpha + beta 4 world_size density x). Merges where that delays less than it saves, as
          Shi et al., OMGS-SGD, INFOCOM 2020.
cupcake   compress_alpha, compress_beta: selecting among x elements takes
          compress_alpha + compress_beta x, beside backward; sending them alpha + beta x. One unit,
          or two with the boundary for which the last one is sent earliest, as Wang et al., Cupcake,
          MLSys 2023.

A keyword that the planner does not look at may be left out. Raises ConfigError, naming keyword,
value and what was expected: for an unknown name or keyword, one that is missing, more or
fewer seconds than tensors, a negative or infinite number. Raises TypeError where it is no number.

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
>>> sparfuse.plan("mg-wfbp", **{**times, "alpha": -1})
Traceback (most recent call last):
    ...
sparfuse.ConfigError: plan mg-wfbp: alpha = -1: expected a finite number of at least 0
)");
}

}  // namespace sparfuse::python
