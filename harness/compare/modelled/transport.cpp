#include "harness/compare/modelled/transport.hpp"

#include <cmath>

#include "core/base/error.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {
namespace {

// "" or why no ratio of the cell's first side can be carried over.
std::string WhyNot(const ComparedCell& cell) {
  if (!cell.sides[0].lacks.empty()) return cell.sides[0].lacks;
  if (cell.config.value("mode", "") == "modelled") return "modelled: nothing was measured";
  if (cell.config.value("kind", "") != "throughput") return "the model trains nothing";
  return "";
}

Transported TransportedOf(const ComparedCell& cell, const ComparedSetting& setting,
                          const std::vector<std::unique_ptr<ModelledSide>>& models,
                          std::size_t side) {
  Transported carried;
  carried.lacks = WhyNot(cell);
  if (!carried.lacks.empty()) return carried;
  const CellConfig config = CellConfigOf(cell.config),
                   reference = CellConfigOf(cell.reference_config);
  ModelledRatio first, second;
  try {
    first = models[0]->RatioOf(config, reference, cell.metric, HostsOf(setting, 0));
    second = models[side]->RatioOf(config, reference, cell.metric, HostsOf(setting, side));
  } catch (const Error& error) {
    if (error.kind() != FailureKind::kConfig) throw;
    carried.lacks = error.what();
    return carried;
  }
  const Interval change = (second / first).Band();
  carried.model_first = first.Band();
  carried.model_second = second.Band();
  carried.ratio = Product(*cell.sides[0].ratio, change);
  // Otherwise the residual would include differences beside the machines, such as revisions.
  const std::string& why_not = cell.verdicts[side - 1].why_not;
  if (!cell.sides[side].lacks.empty() || (!why_not.empty() && !why_not.starts_with("other regime")))
    return carried;
  const Contrast contrast = ContrastOf(cell.sides[side].ratios, cell.sides[0].ratios, kSameWithin);
  carried.residual = Product(contrast.ratio, Inverse(change));
  return carried;
}

}  // namespace

Interval Product(const Interval& a, const Interval& b) {
  const double value = a.value * b.value;
  Interval product{value, value, value, a.n};
  if (!a.has_bounds() || !b.has_bounds()) {
    product.n = 1;
    return product;
  }
  const auto away = [](double end, double middle) { return std::log(end / middle); };
  product.low = value * std::exp(-std::hypot(away(a.low, a.value), away(b.low, b.value)));
  product.high = value * std::exp(std::hypot(away(a.high, a.value), away(b.high, b.value)));
  return product;
}

Interval Inverse(const Interval& of) { return {1 / of.value, 1 / of.high, 1 / of.low, of.n}; }

int HostsOf(const ComparedSetting& setting, std::size_t side) {
  const int own = setting.regimes[side].hosts;
  return own > 0 ? own : setting.regimes[0].hosts;
}

void CarryOver(SystemComparison& comparison,
               const std::vector<std::unique_ptr<ModelledSide>>& models) {
  for (ComparedPart& part : comparison.parts) {
    for (ComparedCell& cell : part.cells) {
      cell.transported.clear();
      for (std::size_t side = 1; side < models.size(); ++side)
        cell.transported.push_back(TransportedOf(cell, part.settings[cell.setting], models, side));
    }
  }
}

}  // namespace sparfuse::harness
