// Answers which method trains a workload faster on a cluster: ranks methods by modelled throughput,
// with bands, and finds where the order changes and what decides it. Nothing is stored.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "harness/advise/answer.hpp"
#include "harness/advise/modelled_cluster.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/run/model/modelled_cell.hpp"

namespace sparfuse::harness {

// done of total modelled cells.
using AdviceProgress =
    std::function<void(const std::string& doing, std::size_t done, std::size_t total)>;

class Adviser {
 public:
  // Throws Error{kConfig}: an unknown workload, cluster or method with the nearest names, more
  // workers than devices, a value out of its range. `measured`: as ModelledCluster's.
  Adviser(const Catalog& catalog, const ProfileFolders& profiles, AdviceRequest request,
          ProfileOutcomes measured, AdviceProgress progress);

  // Cost: 33 simulated steps for each method, number of workers and density, on all processors.
  Advice Answer();

  // The winners over `bandwidths` times `workers` at the first density. Bands are of methods at
  // most twice as slow as the winner. Throws Error{kConfig} where bandwidths cannot change.
  std::vector<PhasePoint> Phase(const std::vector<double>& bandwidths,
                                const std::vector<int>& workers);

  const AdviceRequest& request() const noexcept { return request_; }
  // The cell of a method. Throws Error{kConfig} saying why there is none.
  CellConfig CellOf(const std::string& method, int workers, double density) const;

 private:
  struct Point {
    int workers;
    double density;
    double bandwidth = 1;
    bool operator<(const Point& other) const {
      return std::tie(workers, density, bandwidth) <
             std::tie(other.workers, other.density, other.bandwidth);
    }
  };
  // What was modelled of a cell: by its hash and the bandwidth.
  struct Modelled {
    CellConfig cell;
    double bandwidth = 1;
    StepModel step;
    std::vector<double> draws;  // of the first step
    bool has_draws = false;
    std::string failure;
  };
  using Key = std::pair<std::string, double>;

  std::vector<int> DefaultWorkers() const;
  // Models what is not modelled yet, draws too if so; gives the methods for which that fails.
  std::vector<LeftOut> Model(const std::vector<Point>& points, bool draws, const std::string& doing,
                             const std::vector<std::string>* of = nullptr);
  const Modelled* Find(const std::string& method, const Point& point) const;
  std::vector<const Modelled*> Ordered(const Point& point) const;  // fastest first
  Ranking Rank(const Point& point) const;
  void AddSweeps(Advice& advice);
  void AddDeciding(Advice& advice);

  const Catalog& catalog_;
  const ProfileFolders& profiles_;
  AdviceRequest request_;
  AdviceProgress progress_;
  ModelledCluster cluster_;
  ThreadPool pool_;
  std::vector<std::string> asked_, with_dense_;
  std::map<Key, Modelled> modelled_;
  std::map<std::pair<std::string, Point>, Key> keys_;
};

}  // namespace sparfuse::harness
