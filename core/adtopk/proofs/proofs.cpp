#include "core/adtopk/proofs/proofs.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/adtopk/proofs/proof_tensor.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

const std::vector<ProofShape>& Shapes() {
  static const std::vector<ProofShape> shapes = {
      {32, 64}, {300, 70}, {16, 24, 3, 3}, {64, 3, 7, 7}};
  return shapes;
}

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// Checks |a - C(a)|^2 <= (1 - k / C) |a|^2 for every fibre, and so for the tensor.
void Contraction(ProofRows& rows) {
  constexpr double kRounding = 1e-6;  // of the squares' quotient
  for (const std::string axis : {"1", "0", "longest"}) {
    double worst = 0;
    double worst_equal = 0;
    for (const ProofShape& shape : Shapes()) {
      const std::size_t n = ElementsOf(shape);
      const Fibres fibres = FibresOf(n, shape, AxisOf(axis));
      for (const double density : {0.01, 0.05, 0.25}) {
        ProofTensor tensor("adtopk", shape, density, axis);
        const double left = 1 - ProofDelta("adtopk", shape, density, axis);
        for (int kind = 0; kind < 3; ++kind) {
          const ProofVector a = ProofGradient(kind, n, 1);
          tensor.Choose(a);
          const ProofVector kept = tensor.Dense();
          for (std::size_t f = 0; f < fibres.count() && left > 0; ++f) {
            double all = 0;
            double lost = 0;
            for (std::size_t c = 0; c < fibres.length; ++c) {
              const std::size_t i =
                  (f / fibres.inner * fibres.length + c) * fibres.inner + f % fibres.inner;
              const double square = static_cast<double>(a[i]) * static_cast<double>(a[i]);
              all += square;
              if (kept[i] == 0.0f) lost += square;
            }
            worst = std::max(worst, lost / all / left);
            if (kind == 2) worst_equal = std::max(worst_equal, std::abs(lost / all / left - 1));
          }
        }
      }
    }
    rows.Add("C1", "largest |a - AD(a)|^2 / ((1 - k/C) |a|^2) of a fibre, axis " + axis, kStich,
             worst, Relation::kAtMost, 1 + kRounding);
    rows.Add("C1", "the same if all |a_i| are equal: largest distance from 1, axis " + axis, kStich,
             worst_equal, Relation::kAtMost, kRounding);
  }
  for (const ProofVariant& variant : kProofVariants) {
    double worst = 0;
    for (const ProofShape& shape : Shapes()) {
      for (const double density : {0.01, 0.05, 0.25}) {
        ProofTensor tensor(variant.sparsifier, shape, density, variant.axis);
        for (int step = 0; step < 6; ++step) {
          const ProofVector a =
              ProofGradient(step % 3, ElementsOf(shape), static_cast<std::uint64_t>(step));
          tensor.Choose(a);
          const double left = 1 - ProofDelta(variant.sparsifier, shape, density, variant.axis);
          const double all = SquareOf(a);
          if (left > 0) worst = std::max(worst, (all - SquareOf(tensor.values())) / all / left);
        }
      }
    }
    rows.Add(
        "C1",
        "largest |a - C(a)|^2 / ((1 - delta) |a|^2) of a tensor, " + std::string(variant.label),
        kStich, worst, Relation::kAtMost, 1 + kRounding);
  }
  // A random choice contracts in expectation only.
  const ProofShape shape = {32, 64};
  const ProofVector a = ProofGradient(1, ElementsOf(shape), 3);
  ProofTensor random("randomk", shape, 0.05);
  constexpr int kDraws = 400;
  double sum = 0;
  double squares = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    random.Choose(a);
    const double lost = 1 - SquareOf(random.values()) / SquareOf(a);
    sum += lost;
    squares += lost * lost;
  }
  const double mean = sum / kDraws;
  const double error = std::sqrt((squares / kDraws - mean * mean) / (kDraws - 1));
  rows.Add("C1", "random-k, 400 draws: |mean - (1 - k/n)| in standard errors", kStich,
           std::abs(mean - (1 - KeptFraction(shape, 0.05))) / error, Relation::kAtMost, 3);
}

// Checks that at an equal count no selection leaves less behind than global top-k.
void Order(ProofRows& rows) {
  double worst = 0;
  int contradictions = 0;
  int equal = 0;
  const ProofShape shape = {24, 40};
  constexpr std::size_t kRows = 24;
  constexpr std::size_t kLength = 40;
  for (std::uint64_t trial = 0; trial < 60; ++trial) {
    ProofVector a = ProofGradient(static_cast<int>(trial % 2), ElementsOf(shape), trial);
    if (trial % 3 == 0) {  // rotates the first row into every row: each holds its share of the top
      for (std::size_t r = 1; r < kRows; ++r) {
        for (std::size_t c = 0; c < kLength; ++c) {
          a[r * kLength + (c + r) % kLength] = a[c] * (1 + 1e-4f * static_cast<float>(r));
        }
      }
    }
    ProofTensor by_fibre("adtopk", shape, 0.1);
    by_fibre.Choose(a);
    const double density =
        static_cast<double>(by_fibre.indices().size()) / static_cast<double>(a.size());
    ProofTensor global("topk", shape, density + 1e-12);
    global.Choose(a);
    const double all = SquareOf(a);
    const double gap = (all - SquareOf(by_fibre.values())) - (all - SquareOf(global.values()));
    worst = std::max(worst, -gap / all);
    std::array<std::size_t, kRows> counts{};
    for (const std::uint32_t i : global.indices()) ++counts[i / kLength];
    const bool even = std::ranges::all_of(counts, [](std::size_t count) { return count == 4; });
    const bool no_gap = std::abs(gap) <= 1e-12 * all;
    contradictions += even != no_gap ? 1 : 0;
    equal += even ? 1 : 0;
  }
  rows.Add("C2", "largest (|a - Top(a)|^2 - |a - AD(a)|^2) / |a|^2 at equal counts, 60 tensors",
           kAdTopK, worst, Relation::kAtMost, 1e-12);
  rows.Add("C2",
           "tensors with difference 0 although global top-k takes more or less than k of a fibre, "
           "or the reverse",
           kAdTopK, contradictions, Relation::kEquals, 0);
  rows.Add("C2", "tensors whose global top-k has k of each fibre (the case exists)", kAdTopK, equal,
           Relation::kAbove, 0);
}

// Checks that every fibre sends k elements; global top-k leaves fibres out.
void Coverage(ProofRows& rows) {
  int wrong = 0;
  for (const ProofShape& shape : Shapes()) {
    const std::size_t n = ElementsOf(shape);
    for (const std::string axis : {"1", "0", "longest"}) {
      const Fibres fibres = FibresOf(n, shape, AxisOf(axis));
      const std::size_t k = KeptCount(fibres.length, 0.05);
      ProofTensor tensor("adtopk", shape, 0.05, axis);
      tensor.Choose(ProofGradient(1, n, 9));
      std::vector<std::size_t> counts(fibres.count(), 0);
      for (const std::uint32_t i : tensor.indices()) {
        ++counts[i / fibres.inner / fibres.length * fibres.inner + i % fibres.inner];
      }
      wrong += static_cast<int>(
          std::ranges::count_if(counts, [&](std::size_t count) { return count != k; }));
    }
  }
  rows.Add("C3", "fibres that send more or fewer than k elements, AD, all shapes and axes", kAdTopK,
           wrong, Relation::kEquals, 0);
  // The rows of an embedding, a few of which have large gradients.
  const ProofShape shape = {500, 64};
  ProofVector a = ProofGradient(0, ElementsOf(shape), 4);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i / 64 % 10 != 0) a[i] *= 0.01f;
  }
  ProofTensor global("topk", shape, 0.02);
  global.Choose(a);
  std::vector<bool> seen(500, false);
  for (const std::uint32_t i : global.indices()) seen[i / 64] = true;
  const auto missed = static_cast<double>(std::ranges::count(seen, false)) / 500;
  rows.Add("C3", "fraction of the rows of an embedding that global top-k leaves out; AD none",
           kAdTopK, missed, Relation::kAbove, 0);
}

// Checks that |e'| <= sqrt(1 - delta) (|e| + |g|) sums up to a bound for all steps.
void ResidualBound(ProofRows& rows) {
  const ProofShape shape = {32, 64};
  const std::size_t n = ElementsOf(shape);
  const auto unit = [&](ProofVector g) {
    const auto norm = static_cast<float>(std::sqrt(SquareOf(g)));
    for (float& v : g) v /= norm;
    return g;
  };
  for (const ProofVariant& variant : kProofVariants) {
    ProofTensor random(variant.sparsifier, shape, 0.05, variant.axis);
    ProofTensor constant(variant.sparsifier, shape, 0.05, variant.axis);
    const ProofVector same = unit(ProofGradient(2, n, 0));
    double worst = 0;
    for (std::uint64_t step = 0; step < 400; ++step) {
      random.Step(unit(ProofGradient(static_cast<int>(step % 2), n, step)));
      constant.Step(same);
      worst = std::max({worst, SquareOf(random.residual()), SquareOf(constant.residual())});
    }
    const double root = std::sqrt(1 - ProofDelta(variant.sparsifier, shape, 0.05, variant.axis));
    rows.Add("C4", "largest |e_t| of 400 steps with |g| = 1, " + std::string(variant.label), kStich,
             std::sqrt(worst), Relation::kAtMost, root / (1 - root));
  }
  constexpr std::uint64_t kSeeds = 40;
  std::vector<double> squares(200, 0.0);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    ProofTensor random("randomk", shape, 0.05, "1", "layer.weight", seed);
    for (std::size_t step = 0; step < squares.size(); ++step) {
      random.Step(unit(ProofGradient(0, n, step)));
      squares[step] += SquareOf(random.residual()) / kSeeds;
    }
  }
  const double delta = KeptFraction(shape, 0.05);
  rows.Add("C4", "random-k: largest mean |e_t|^2 over 40 seeds with |g| = 1", kKarimireddy,
           *std::ranges::max_element(squares), Relation::kAtMost,
           4 * (1 - delta) / (delta * delta));
}

// Checks a = C(a) + e, bit for bit.
void Mass(ProofRows& rows) {
  for (const ProofVariant& variant : kProofVariants) {
    int differing = 0;
    for (const ProofShape& shape : Shapes()) {
      const std::size_t n = ElementsOf(shape);
      ProofTensor tensor(variant.sparsifier, shape, 0.05, variant.axis);
      for (std::uint64_t step = 0; step < 20; ++step) {
        const ProofVector g = ProofGradient(static_cast<int>(step % 3), n, step);
        ProofVector a(n);
        for (std::size_t i = 0; i < n; ++i) a[i] = g[i] + tensor.residual()[i];
        tensor.Step(g);
        std::vector<bool> sent(n, false);
        for (std::size_t j = 0; j < tensor.indices().size(); ++j) {
          const std::uint32_t i = tensor.indices()[j];
          sent[i] = true;
          differing += Bits(tensor.values()[j]) != Bits(a[i]) ? 1 : 0;
        }
        for (std::size_t i = 0; i < n; ++i) {
          differing += Bits(tensor.residual()[i]) != (sent[i] ? 0u : Bits(a[i])) ? 1 : 0;
        }
      }
    }
    rows.Add(
        "C5",
        "elements of a that differ from C(a) + e in a bit, 20 steps, " + std::string(variant.label),
        kStich, differing, Relation::kEquals, 0);
  }
}

// Checks that phases are A, G, A, G from step 0 on, the same on every rank for any gradients.
void Phases(ProofRows& rows) {
  const ProofShape shape = {20, 50};
  const auto out_of_phase = [&](const char* name, bool alternates) {
    int wrong = 0;
    for (std::uint64_t rank = 0; rank < 4; ++rank) {
      ProofTensor interleaved("adtopk-interleaved", shape, 0.1, "1", name);
      ProofTensor by_fibre("adtopk", shape, 0.1);
      ProofTensor global("topk", shape, 0.1);
      for (std::uint64_t step = 0; step < 12; ++step) {
        const ProofVector a = ProofGradient(0, ElementsOf(shape), 100 * rank + step);
        interleaved.Choose(a);
        ProofTensor& expected = alternates && step % 2 == 1 ? global : by_fibre;
        expected.Choose(a);
        wrong += std::ranges::equal(interleaved.indices(), expected.indices()) ? 0 : 1;
      }
    }
    return wrong;
  };
  rows.Add("C8", "steps of 4 x 12 that are not A, G, A, G from step 0 on, interleaved", kAdTopK,
           out_of_phase("layer.weight", true), Relation::kEquals, 0);
  rows.Add("C8", "steps of 4 x 12 that are not A for a tensor named fc.weight, interleaved",
           kAdTopK, out_of_phase("fc.weight", false), Relation::kEquals, 0);
}

// Checks that the decoded gather is the mean of the ranks' decoded selections. Includes P k = C and
// P K = n, where the gather has as many elements as the tensor.
void Aggregation(ProofRows& rows) {
  ThreadPool pool(1);
  for (const ProofVariant& variant : {kProofVariants[0], kProofVariants[3], kProofVariants[4]}) {
    double worst = 0;
    int full = 0;  // number of gathers as large as the tensor
    for (const std::size_t ranks : {1, 2, 3, 4, 8}) {
      for (const auto& [shape, density] :
           {std::pair{ProofShape{6, 8}, 0.125}, std::pair{ProofShape{5, 12}, 0.25},
            std::pair{ProofShape{4, 6}, 0.5}, std::pair{ProofShape{3, 9}, 1.0 / 3},
            std::pair{ProofShape{16, 24, 3, 3}, 0.05}}) {
        const std::size_t n = ElementsOf(shape);
        for (std::uint64_t step = 0; step < 2; ++step) {
          std::vector<std::unique_ptr<ProofTensor>> tensors;
          std::vector<SparsePayload> payloads;
          std::vector<double> mean(n, 0.0);
          std::size_t gathered = 0;
          for (std::size_t p = 0; p < ranks; ++p) {
            tensors.push_back(
                std::make_unique<ProofTensor>(variant.sparsifier, shape, density, variant.axis));
            for (std::uint64_t s = 0; s <= step; ++s)
              tensors[p]->Step(ProofGradient(0, n, 10 * p + s));
            payloads.push_back(tensors[p]->payload());
            gathered += payloads[p].indices.size();
            const ProofVector dense = tensors[p]->Dense();
            for (std::size_t i = 0; i < n; ++i) {
              mean[i] += static_cast<double>(dense[i]) / static_cast<double>(ranks);
            }
          }
          full += gathered == n ? 1 : 0;
          ProofVector decoded(n);
          AccumulateSparse(payloads, 1.0f / static_cast<float>(ranks), decoded, pool);
          for (std::size_t i = 0; i < n; ++i) {
            worst = std::max(worst, std::abs(static_cast<double>(decoded[i]) - mean[i]));
          }
        }
      }
    }
    const std::string label = variant.label;
    rows.Add("C9",
             "largest distance of the decoded gather from the mean, P = 1, 2, 3, 4, 8, " + label,
             kAdTopK, worst, Relation::kAtMost, 1e-6);
    rows.Add("C9", "number of these gathers with as many elements as the tensor, " + label, kAdTopK,
             full, Relation::kAbove, 0);
  }
}

}  // namespace

std::vector<ProofRow> ProveAdTopK() {
  ProofRows rows;
  Contraction(rows);
  Order(rows);
  Coverage(rows);
  ResidualBound(rows);
  Mass(rows);
  ProveVirtualIterate(rows);
  ProveQuadratic(rows);
  Phases(rows);
  Aggregation(rows);
  ProveXi(rows);
  return rows.Take();
}

}  // namespace sparfuse
