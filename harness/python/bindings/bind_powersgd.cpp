// Binds PowerSGD: one worker of several processes, or all workers in one process.
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "baselines/powersgd/powersgd.hpp"
#include "core/base/error.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "harness/python/bindings/given.hpp"
#include "harness/python/compressors.hpp"
#include "harness/python/module.hpp"

namespace sparfuse::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

class LowRank : public MadeByInit {
 public:
  LowRank(std::int64_t rank, std::uint64_t seed, int workers)
      : rank_(static_cast<int>(IntOption(
            ResolveOptions("PowerSGD", PowerSgdDescriptor().options, {{"rank", rank}}), "rank"))),
        seed_(seed),
        workers_(workers) {}

  int rank() const { return rank_; }
  std::uint64_t seed() const { return seed_; }
  int workers() const { return workers_; }

  bool Compresses(const py::object& shape) const {
    return PowerSgd::Compresses(ReadShape(shape), rank_);
  }

  // Factors are views that keep `self` alive. Tensors are never removed.
  static py::array ComputeP(const py::object& self, const Given<"name", std::string>& given_name,
                            const py::object& g) {
    const std::string& name = given_name;
    auto& low_rank = self.cast<LowRank&>();
    const FloatArray gradient = ReadGradient(g);
    PowerSgd* factors = nullptr;
    {
      const GilReleased no_gil;
      const std::lock_guard lock(low_rank.mutex_);
      low_rank.RequireOneWorker("compute_p");
      Tensor& tensor = low_rank.TensorOf(name, gradient.shape);
      RequireNext(name, tensor, Next::kP);
      low_rank.ComputeAllP(name, tensor, {&gradient, 1});
      tensor.next = Next::kQ;
      factors = &tensor.workers[0].factors;
    }
    return View(self, factors->p(), factors->rank());
  }

  static py::array ComputeQ(const py::object& self, const Given<"name", std::string>& given_name,
                            const py::object& p) {
    const std::string& name = given_name;
    auto& low_rank = self.cast<LowRank&>();
    const std::optional<FloatArray> averaged = ReadFactor(p, "p");
    PowerSgd* factors = nullptr;
    {
      const GilReleased no_gil;
      const std::lock_guard lock(low_rank.mutex_);
      Tensor& tensor = low_rank.Started(name, Next::kQ);
      factors = &tensor.workers[0].factors;
      TakeFactor(averaged, factors->rank(), factors->p(), "p");
      low_rank.ComputeAllQ(name, tensor);
      tensor.next = Next::kOut;
    }
    return View(self, factors->q(), factors->rank());
  }

  py::object Reconstruct(const Given<"name", std::string>& given_name, const py::object& q,
                         const py::object& out) {
    const std::string& name = given_name;
    const std::optional<FloatArray> averaged = ReadFactor(q, "q");
    const std::vector<std::int64_t> shape = [&] {
      const GilReleased no_gil;
      const std::lock_guard lock(mutex_);
      return Started(name, Next::kOut).shape;
    }();
    const DenseResult result = MakeDense(out, shape);
    {
      const GilReleased no_gil;
      const std::lock_guard lock(mutex_);
      Tensor& tensor = Started(name, Next::kOut);
      const PowerSgd& factors = tensor.workers[0].factors;
      TakeFactor(averaged, factors.rank(), factors.q(), "q");
      ReconstructAll(name, tensor, result.values);
    }
    return result.object;
  }

  py::dict Average(const py::dict& gradients, const py::object& out) {
    struct Job {
      std::string name;
      std::vector<FloatArray> gradients;
      DenseResult result;
    };
    std::vector<Job> jobs;  // all are checked before any runs
    for (const auto& [key, value] : gradients) {
      Job job{ReadAs<std::string>(key, "gradients: a name"), {}, {}};
      const std::string what = "gradients[\"" + job.name + "\"]";
      if (!py::isinstance<py::sequence>(value)) {
        throw py::type_error(what + " is a " + TypeText(value) +
                             "; expected a list of arrays, one for each worker");
      }
      const auto given = py::reinterpret_borrow<py::sequence>(value);
      SPARFUSE_REQUIRE(py::len(given) == static_cast<std::size_t>(workers_),
                       what + " has " + std::to_string(py::len(given)) +
                           " gradients; expected workers = " + std::to_string(workers_));
      for (std::size_t w = 0; w < py::len(given); ++w) {
        job.gradients.push_back(ReadGradient(given[w]));
        RequireShape(job.name, job.gradients[0].shape, job.gradients[w].shape);
      }
      const std::vector<std::int64_t>& shape = job.gradients[0].shape;
      job.result =
          MakeDense(out.is_none() ? out : py::object(out[key]), shape, "out[\"" + job.name + "\"]");
      jobs.push_back(std::move(job));
    }
    {
      const GilReleased no_gil;
      const std::lock_guard lock(mutex_);
      for (const Job& job : jobs) AverageOne(job.name, job.gradients, job.result.values);
    }
    py::dict averages;
    for (const Job& job : jobs) averages[py::str(job.name)] = job.result.object;
    return averages;
  }

  py::array Residual(const Given<"name", std::string>& given_name,
                     const Given<"worker", int>& given_worker) {
    const std::string& name = given_name;
    const int worker = given_worker;
    SPARFUSE_REQUIRE(
        worker >= 0 && worker < workers_,
        "worker = " + std::to_string(worker) + ": expected 0 to " + std::to_string(workers_ - 1));
    auto [copy, shape] = [&] {
      const GilReleased no_gil;
      const std::lock_guard lock(mutex_);
      const Tensor& tensor = FindTensor(tensors_, name, "compressed tensor");
      const Buffer<float>& residual = tensor.workers[static_cast<std::size_t>(worker)].residual;
      return std::pair(ArrayMemory<float>(residual.host()), tensor.shape);
    }();
    return std::move(copy).Release(shape);
  }

  // Saves residuals and Q. Between steps P is of no use.
  py::dict StateDict() {
    struct Saved {
      std::uint64_t steps;
      std::vector<std::int64_t> shape, factor_shape;
      std::vector<ArrayMemory<float>> residuals, factors;
    };
    std::map<std::string, Saved> saved;
    {
      const GilReleased no_gil;
      const std::lock_guard lock(mutex_);
      for (const auto& [name, tensor] : tensors_) {
        RequireNext(name, tensor, Next::kP);
        Saved& copy = saved[name];
        copy.steps = tensor.steps;
        copy.shape = tensor.shape;
        copy.factor_shape =
            ShapeOfFactor(tensor.workers[0].factors.q(), tensor.workers[0].factors.rank());
        for (const Worker& worker : tensor.workers) {
          copy.residuals.emplace_back(worker.residual.host());
          copy.factors.emplace_back(worker.factors.q());
        }
      }
    }
    py::dict tensors;
    for (auto& [name, copy] : saved) {
      py::list residuals, factors;
      for (auto& residual : copy.residuals)
        residuals.append(std::move(residual).Release(copy.shape));
      for (auto& q : copy.factors) factors.append(std::move(q).Release(copy.factor_shape));
      tensors[py::str(name)] =
          py::dict("steps"_a = copy.steps, "residuals"_a = residuals, "q"_a = factors);
    }
    return py::dict("settings"_a = py::make_tuple(rank_, seed_, workers_), "tensors"_a = tensors);
  }

  // Checks everything before it changes anything.
  void LoadStateDict(const py::object& state) {
    const py::object settings = StateOf(state, "settings");
    const py::tuple own = py::make_tuple(rank_, seed_, workers_);
    SPARFUSE_REQUIRE(
        settings.equal(own),
        "state is of (rank, seed, workers) = " + py::cast<std::string>(py::str(settings)) +
            "; this object has " + py::cast<std::string>(py::str(own)));
    std::map<std::string, Tensor> tensors;
    for (const auto& [key, value] : StateOf(state, "tensors").cast<py::dict>()) {
      const auto name = py::cast<std::string>(py::str(key));
      const py::list residuals = StateOf(value, "residuals"), factors = StateOf(value, "q");
      const auto workers = static_cast<std::size_t>(workers_);
      SPARFUSE_REQUIRE(residuals.size() == workers && factors.size() == workers,
                       "state of tensor \"" + name + "\": expected residuals and q of " +
                           std::to_string(workers_) + " workers");
      Tensor* tensor = nullptr;
      for (std::size_t w = 0; w < workers; ++w) {
        const FloatArray residual = ReadFloats(residuals[w], "residuals of \"" + name + "\"");
        const FloatArray q = ReadFloats(factors[w], "q of \"" + name + "\"");
        tensor = &TensorIn(tensors, name, residual.shape);
        Worker& worker = tensor->workers[w];
        std::ranges::copy(residual.values(), worker.residual.host().begin());
        TakeFactor(q, worker.factors.rank(), worker.factors.q(), "q of \"" + name + "\"");
      }
      tensor->steps = py::cast<std::uint64_t>(StateOf(value, "steps"));
    }
    const GilReleased no_gil;
    const std::lock_guard lock(mutex_);
    for (auto& [name, tensor] : tensors_) replaced_.push_back(std::move(tensor));
    tensors_ = std::move(tensors);
  }

 private:
  enum class Next : std::uint8_t { kP, kQ, kOut };
  struct Worker {
    PowerSgd factors;
    Buffer<float> residual;

    SelectSource source(std::span<const float> gradient = {}) const {
      return {{gradient.data(), residual.size(), {}}, residual.view()};
    }
  };
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<Worker> workers;
    Next next = Next::kP;  // the next of compute_p, compute_q and reconstruct
    std::uint64_t steps = 0;
  };

  static py::array View(const py::object& self, std::span<float> factor, std::size_t rank) {
    return py::array_t<float>({rank, factor.size() / rank}, factor.data(), self);
  }

  static std::optional<FloatArray> ReadFactor(const py::object& factor, const std::string& what) {
    if (factor.is_none()) return std::nullopt;
    return ReadFloats(factor, what);
  }

  static std::vector<std::int64_t> ShapeOfFactor(std::span<const float> factor, std::size_t rank) {
    return {static_cast<std::int64_t>(rank), static_cast<std::int64_t>(factor.size() / rank)};
  }

  // Overwrites a factor with the caller's average if that lies in other memory.
  static void TakeFactor(const std::optional<FloatArray>& averaged, std::size_t rank,
                         std::span<float> factor, const std::string& what) {
    if (!averaged || averaged->values().data() == factor.data()) return;
    const std::vector<std::int64_t> shape = ShapeOfFactor(factor, rank);
    SPARFUSE_REQUIRE(averaged->shape == shape, what + " has shape " + ShapeText(averaged->shape) +
                                                   "; expected " + ShapeText(shape));
    std::ranges::copy(averaged->values(), factor.begin());
  }

  void RequireOneWorker(const std::string& method) const {
    SPARFUSE_REQUIRE(workers_ == 1, method +
                                        " is a step of one worker; this object has workers = " +
                                        std::to_string(workers_) + ": call average");
  }

  static void RequireNext(const std::string& name, const Tensor& tensor, Next given) {
    constexpr const char* kMethods[] = {"compute_p", "compute_q", "reconstruct"};
    SPARFUSE_REQUIRE(tensor.next == given,
                     "tensor \"" + name + "\": " + kMethods[static_cast<int>(given)] +
                         " was called; expected " + kMethods[static_cast<int>(tensor.next)]);
  }

  Tensor& Started(const std::string& name, Next next) {
    Tensor& tensor = FindTensor(tensors_, name, "compressed tensor");
    RequireNext(name, tensor, next);
    return tensor;
  }

  Tensor& TensorOf(const std::string& name, const std::vector<std::int64_t>& shape) {
    return TensorIn(tensors_, name, shape);
  }

  Tensor& TensorIn(std::map<std::string, Tensor>& tensors, const std::string& name,
                   const std::vector<std::int64_t>& shape) const {
    auto it = tensors.find(name);
    if (it == tensors.end()) {
      SPARFUSE_REQUIRE(PowerSgd::Compresses(shape, rank_),
                       "tensor \"" + name + "\" of shape " + ShapeText(shape) +
                           " is not larger than its factors of rank " + std::to_string(rank_) +
                           ": average it as it is");
      Tensor fresh{shape, {}};
      for (int w = 0; w < workers_; ++w) {
        fresh.workers.push_back(
            {PowerSgd(shape, rank_, seed_), Buffer<float>(ElementCount(shape))});
      }
      it = tensors.emplace(name, std::move(fresh)).first;
    }
    RequireShape(name, it->second.shape, shape);
    return it->second;
  }

  // Clears the residuals that overflowed, so that the next step can go on.
  static void StartAgain(Tensor& tensor) {
    for (const Worker& worker : tensor.workers) std::ranges::fill(worker.residual.host(), 0.0f);
    tensor.next = Next::kP;
  }

  // The average of finite factors may not be finite.
  static void RequireFinite(const std::string& name, Tensor& tensor, std::span<const float> factor,
                            const std::string& what) {
    if (FirstNotFinite(factor) == factor.size()) return;
    StartAgain(tensor);
    for (const Worker& worker : tensor.workers) std::ranges::fill(worker.factors.q(), 0.0f);
    SPARFUSE_THROW(kNumeric, "tensor \"" + name + "\": the averaged factor " + what +
                                 " is not finite; expected smaller gradients");
  }

  void ComputeAllP(const std::string& name, Tensor& tensor, std::span<const FloatArray> gradients) {
    const std::shared_ptr<ThreadPool> pool = ModulePool();
    const TensorInfo info{TensorId(name), name, tensor.shape, tensor.steps};
    // This check precedes any addition, because residuals outlive a step that loss scaling skips.
    for (const FloatArray& gradient : gradients)
      sparfuse::RequireFinite(*pool, gradient.values(), info);
    ++tensor.steps;
    try {
      for (std::size_t w = 0; w < tensor.workers.size(); ++w) {
        Worker& worker = tensor.workers[w];
        worker.factors.ComputeP(Context(*pool), worker.source(gradients[w].values()), info);
      }
    } catch (const Error&) {
      StartAgain(tensor);
      throw;
    }
  }

  void ComputeAllQ(const std::string& name, Tensor& tensor) {
    RequireFinite(name, tensor, tensor.workers[0].factors.p(), "P");
    const std::shared_ptr<ThreadPool> pool = ModulePool();
    for (Worker& worker : tensor.workers) {
      worker.factors.Orthonormalize();
      worker.factors.ComputeQ(Context(*pool), worker.source());
    }
  }

  void ReconstructAll(const std::string& name, Tensor& tensor, std::span<float> out) {
    RequireFinite(name, tensor, tensor.workers[0].factors.q(), "Q");
    const std::shared_ptr<ThreadPool> pool = ModulePool();
    for (const Worker& worker : tensor.workers) {
      worker.factors.Reconstruct(Context(*pool), worker.source(), out);
    }
    tensor.next = Next::kP;
  }

  // Replaces an all-reduce: adds the workers' factors in their order and divides by their number.
  template <class Factor>
  static void AverageFactor(Tensor& tensor, const Factor& factor) {
    const std::span<float> mean = factor(tensor.workers[0].factors);
    for (std::size_t w = 1; w < tensor.workers.size(); ++w) {
      AddInto(factor(tensor.workers[w].factors), mean);
    }
    ScaleDense(mean, 1.0f / static_cast<float>(tensor.workers.size()), mean, *ModulePool());
    for (std::size_t w = 1; w < tensor.workers.size(); ++w) {
      std::ranges::copy(mean, factor(tensor.workers[w].factors).begin());
    }
  }

  void AverageOne(const std::string& name, std::span<const FloatArray> gradients,
                  std::span<float> out) {
    if (!PowerSgd::Compresses(gradients[0].shape, rank_)) return AverageDense(name, gradients, out);
    Tensor& tensor = TensorOf(name, gradients[0].shape);
    RequireNext(name, tensor, Next::kP);
    ComputeAllP(name, tensor, gradients);
    AverageFactor(tensor, [](PowerSgd& factors) { return factors.p(); });
    ComputeAllQ(name, tensor);
    AverageFactor(tensor, [](PowerSgd& factors) { return factors.q(); });
    ReconstructAll(name, tensor, out);
  }

  // `out` may be one of the gradients.
  static void AverageDense(const std::string& name, std::span<const FloatArray> gradients,
                           std::span<float> out) {
    const std::span<const float> first = gradients[0].values();
    std::vector<float> sum(first.begin(), first.end());
    for (const FloatArray& gradient : gradients.subspan(1)) AddInto(gradient.values(), sum);
    if (const std::size_t bad = FirstNotFinite(sum); bad != sum.size()) {
      SPARFUSE_THROW(kNumeric, "tensor \"" + name + "\": element " + std::to_string(bad) + " of " +
                                   std::to_string(sum.size()) + " of the sum is " +
                                   std::to_string(sum[bad]) + "; expected finite gradients");
    }
    ScaleDense(sum, 1.0f / static_cast<float>(gradients.size()), out, *ModulePool());
  }

  QuantizeContext Context(ThreadPool& pool) { return {&pool, &workspace_, 0}; }

  int rank_;
  std::uint64_t seed_;
  int workers_;
  std::mutex mutex_;  // guards the members below
  Workspace workspace_;
  std::map<std::string, Tensor> tensors_;
  std::vector<Tensor> replaced_;  // by LoadStateDict; Python arrays are views of their factors
};

void BindPowerSgdSteps(py::class_<LowRank>& power_sgd) {
  power_sgd
      .def(py::init([](const Given<"rank", std::int64_t>& rank, const py::object& seed,
                       const py::object& workers) {
             return Make<LowRank>(*rank, ReadSeed(seed),
                                  static_cast<int>(ReadInteger(workers, "workers", 1, kMostRanks)));
           }),
           py::arg("rank") = 4, py::arg("seed") = 0, py::arg("workers") = 1)
      .def("compresses", &LowRank::Compresses, py::arg("shape"),
           R"(Whether a tensor of a shape is sent as two factors: a matrix larger than they are.

>>> import sparfuse
>>> f = sparfuse.PowerSGD(rank=4)
>>> f.compresses((64, 3, 7, 7)), f.compresses((64,)), f.compresses((5, 5))
(True, False, False)
)")
      .def("average", &LowRank::Average, py::arg("gradients"), py::kw_only(),
           py::arg("out") = py::none(),
           R"(A step of all workers: {name: average} of {name: [gradient of each worker]}.

gradients  float32 arrays as in Sparsifier.select, not modified. Those of shapes that are not
           compressed are averaged as they are.
out        memory to reuse: {name: array}, each as in decompress and returned. It may be one of the
           gradients.

NumericError for a NaN or an infinity: that tensor keeps its residual, the tensors
before it have made their step, and the tensors after it have not. If a sum or a factor overflows,
the residual of the tensor is lost.

>>> import numpy, sparfuse
>>> f = sparfuse.PowerSGD(rank=1, workers=2)
>>> g = numpy.outer([1, 2, 3], [4, 5, 6, 7]).astype(numpy.float32)
>>> average = f.average({"weight": [g, 3 * g]})["weight"]
>>> bool(numpy.allclose(average, 2 * g))
True
)")
      .def("compute_p", &LowRank::ComputeP, py::arg("name"), py::arg("g"),
           R"(Begins a step of one tensor: adds the residual to g and returns the factor P.

name   of the tensor: its residual and factors are kept by it
g      as in Sparsifier.select; not modified

Returns [rank, rows] float32, a view of this object's memory: average it in place over the workers,
or give compute_q the average. Raises ConfigError if g's shape is not compressed, or the step before
did not reach reconstruct; NumericError for a NaN or an infinity in g, which changes nothing, and for
a sum that overflows: the residual of this tensor is lost then.

>>> import numpy, sparfuse
>>> f = sparfuse.PowerSGD(rank=2)
>>> f.compute_p("weight", numpy.ones((64, 3, 5), dtype=numpy.float32)).shape
(2, 64)
)")
      .def("compute_q", &LowRank::ComputeQ, py::arg("name"), py::arg("p") = py::none(),
           R"(Goes on with a tensor's averaged P; returns the factor Q.

p   the average over the workers, [rank, rows]; by default the present content of the array that
    compute_p returned

Returns [rank, columns] float32, a view of this object's memory: average it in place over the
workers, or give reconstruct the average.

>>> import numpy, sparfuse
>>> f = sparfuse.PowerSGD(rank=2)
>>> p = f.compute_p("weight", numpy.ones((64, 3, 5), dtype=numpy.float32))
>>> p /= 1  # the average over one worker
>>> f.compute_q("weight").shape
(2, 15)
)")
      .def("reconstruct", &LowRank::Reconstruct, py::arg("name"), py::arg("q") = py::none(),
           py::kw_only(), py::arg("out") = py::none(),
           R"(Ends a step with a tensor's averaged Q: returns P Q' in the shape of the tensor.

q     the average over the workers, [rank, columns]; by default the present content of the array
      that compute_q returned
out   memory to reuse, as in decompress; it may be the gradient

>>> import numpy, sparfuse
>>> f = sparfuse.PowerSGD(rank=1)
>>> g = numpy.outer([1, 2, 3], [4, 5, 6, 7]).astype(numpy.float32)
>>> p = f.compute_p("weight", g)
>>> q = f.compute_q("weight", p / 1)  # the average over one worker
>>> bool(numpy.allclose(f.reconstruct("weight", q / 1), g))
True
)");
}

void BindPowerSgdState(py::class_<LowRank>& power_sgd) {
  power_sgd
      .def("residual", &LowRank::Residual, py::arg("name"), py::arg("worker") = 0,
           R"(A copy of the part of a worker's gradients that no average has had yet, in its shape.

Only tensors that are compressed have a residual.

>>> import numpy, sparfuse
>>> f = sparfuse.PowerSGD(rank=1, workers=2)
>>> _ = f.average({"weight": [numpy.ones((3, 4), dtype=numpy.float32)] * 2})
>>> f.residual("weight", worker=1).shape
(3, 4)
)")
      .def("__repr__",
           [](const LowRank& self) {
             return "sparfuse.PowerSGD(rank=" + std::to_string(self.rank()) +
                    ", seed=" + std::to_string(self.seed()) +
                    ", workers=" + std::to_string(self.workers()) + ")";
           })
      .def("state_dict", &LowRank::StateDict,
           R"(The state of this object's tensors, for a checkpoint: dicts of copies and numbers.

The residuals and the factor Q of each worker, and numbers of steps; pickle has them too. An object
made with the same arguments goes on bit for bit with load_state_dict. Raises ConfigError between
compute_p and reconstruct of a tensor.

>>> import numpy, sparfuse
>>> f, resumed = sparfuse.PowerSGD(rank=1), sparfuse.PowerSGD(rank=1)
>>> g = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
>>> _ = f.average({"weight": [g]})
>>> resumed.load_state_dict(f.state_dict())
>>> bool((f.average({"weight": [g]})["weight"] == resumed.average({"weight": [g]})["weight"]).all())
True
)")
      .def("load_state_dict", &LowRank::LoadStateDict, py::arg("state"),
           R"(Goes on from a result of state_dict, in place of all tensors that this object has.

Raises ConfigError or TypeError, and changes nothing, if the state is of another rank, seed,
number of workers or shape.

>>> import sparfuse
>>> sparfuse.PowerSGD(rank=1).load_state_dict(sparfuse.PowerSGD(rank=2).state_dict())
Traceback (most recent call last):
    ...
sparfuse.ConfigError: state is of (rank, seed, workers) = (2, 0, 1); this object has (1, 0, 1)
)")
      .def(
          "__reduce__",
          [](const py::object& self) {
            auto& own = self.cast<LowRank&>();
            return Reduce(self, py::make_tuple(own.rank(), own.seed(), own.workers()), py::dict(),
                          own.StateDict());
          },
          "For pickle and copy: the object goes on as this one would, bit for bit.")
      .def_property_readonly("rank", &LowRank::rank, R"(Columns of the factors.

>>> import sparfuse
>>> sparfuse.PowerSGD(rank=2).rank
2
)")
      .def_property_readonly("seed", &LowRank::seed, R"(The seed of the first Q.

>>> import sparfuse
>>> sparfuse.PowerSGD(seed=3).seed
3
)")
      .def_property_readonly("workers", &LowRank::workers,
                             R"(How many workers' gradients average() takes.

>>> import sparfuse
>>> sparfuse.PowerSGD(workers=2).workers
2
)")
      .def_property_readonly(
          "paper", [](const LowRank&) { return PowerSgdDescriptor().paper; },
          R"(The paper that the method is from.

>>> import sparfuse
>>> sparfuse.PowerSGD().paper
'Vogels et al., NeurIPS 2019'
)")
      .def_property_readonly(
          "deviations", [](const LowRank&) { return PowerSgdDescriptor().deviations; },
          R"(The differences from the paper.

>>> import sparfuse
>>> sparfuse.PowerSGD().deviations.split(".")[0]
'Matrices that are no larger than their factors are sent dense'
)");
}

}  // namespace

void BindPowerSgd(py::module_& module) {
  py::class_<LowRank> power_sgd(
      module, "PowerSGD",
      R"(A gradient matrix as the product of two thin ones, with error feedback.

PowerSGD (Vogels et al., NeurIPS 2019): x = g + r, a matrix of its first dimension times the rest;
P = x Q, averaged over workers, its columns made orthonormal; Q = x' P, averaged; every worker gets
P Q', and r = x - P Q'. Each step starts with the Q of the last one.

rank      columns of the factors, 1 to 32. (Not the rank of a worker.)
seed      of the first Q: the same on all workers
workers   number of workers with gradients in this process: average() does a step. With several
          processes each has an object with workers=1, and averages the two factors by its own means:

            p = f.compute_p(name, g)       # then average p over the workers
            q = f.compute_q(name)          # then average q over the workers
            out = f.reconstruct(name)      # the same on all of them

          compresses(shape) says which tensors are sent so; the others, vectors and small matrices,
          are averaged as they are.

Nothing is lost: summed over workers, residuals and averages are the gradients, up to rounding.

>>> import numpy, sparfuse
>>> rng = numpy.random.default_rng(0)
>>> f = sparfuse.PowerSGD(rank=2, workers=3)
>>> weights = [rng.standard_normal((64, 32), dtype=numpy.float32) for worker in range(3)]
>>> biases = [rng.standard_normal(64, dtype=numpy.float32) for worker in range(3)]
>>> averages = f.average({"weight": weights, "bias": biases})
>>> numpy.linalg.matrix_rank(averages["weight"]).item(), averages["bias"].shape
(2, (64,))
)");
  BindPowerSgdSteps(power_sgd);
  BindPowerSgdState(power_sgd);
}

}  // namespace sparfuse::python
