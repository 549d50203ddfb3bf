// Checks the convergence proofs of all-dimension top-k by numbers: each step that can be computed
// becomes a measured number beside its bound.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse {

// The relation that a measured number must have to its bound.
enum class Relation { kAtMost, kEquals, kAbove };

constexpr std::string_view RelationSign(Relation relation) {
  constexpr std::string_view kSigns[] = {"<=", "=", ">"};
  return kSigns[static_cast<std::size_t>(relation)];
}

struct ProofRow {
  std::string check;      // "C1" to "C10"
  std::string statement;  // the quantity and its subject
  std::string source;     // where the statement comes from
  double measured = 0;
  Relation relation = Relation::kAtMost;
  double bound = 0;
  bool holds = false;
};

// Runs all checks; they take some seconds on one thread. Deterministic.
//
//   C1 contraction, fibre by fibre and of the tensor   C2 order against global top-k
//   C3 coverage of fibres                              C4 bound of the residual
//   C5 conservation of mass                            C6 the virtual iterate is plain SGD
//   C7 steps on a quadratic                            C8 phases of the interleaved form
//   C9 aggregation over ranks                          C10 the constant xi in training
std::vector<ProofRow> ProveAdTopK();

}  // namespace sparfuse
