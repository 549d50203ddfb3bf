#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/advise/advice.hpp"
#include "harness/records/record.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::size_t kEffectsShown = 6;
constexpr double kWorthARow = 0.01;  // share of the variance

json BandJson(const Interval& band) {
  return {{"value", band.value},
          {"low", band.has_bounds() ? json(band.low) : json()},
          {"high", band.has_bounds() ? json(band.high) : json()}};
}

std::string SettingOf(int workers, double density) {
  std::vector<std::string> words;
  if (workers > 0) words.push_back(fmt::format("{} workers", workers));
  if (density > 0) words.push_back(fmt::format("density {:g}", density));
  return fmt::format("{}", fmt::join(words, ", "));
}

Table RankingTable(const Ranking& ranking, const std::string& unit) {
  Table table{.title = SettingOf(ranking.workers, ranking.density),
              .columns = {"", "method", "sparsifier", "throughput", "of the best", "over dense"}};
  std::size_t place = 0;
  for (const RankedMethod& each : ranking.methods) {
    ++place;
    table.rows.push_back(
        {std::to_string(place), each.cell.method,
         each.cell.sparsifier == "none" ? "–" : each.cell.sparsifier,
         IntervalText(each.throughput, unit + "/s"),
         place == 1   ? "best"
         : each.equal ? "equal"
                      : TimesText(each.over_best) + (each.undecided ? ", undecided" : ""),
         !each.over_dense || each.cell.method == "dense" ? "–" : TimesText(*each.over_dense)});
  }
  return table;
}

std::string VerdictText(const Ranking& ranking) {
  std::vector<std::string> undecided, equal;
  for (const RankedMethod& each : ranking.methods) {
    if (each.undecided) undecided.push_back(each.cell.method);
    if (each.equal) equal.push_back(each.cell.method);
  }
  const RankedMethod& best = ranking.methods.front();
  std::string text = fmt::format("{}: {} trains fastest",
                                 SettingOf(ranking.workers, ranking.density), best.cell.method);
  if (best.over_dense && best.cell.method != "dense")
    text += fmt::format(", {} as fast as dense", TimesText(*best.over_dense));
  if (const int steps = best.cell.method_options.window_steps(); steps > 1)
    text += fmt::format(" (it exchanges once in {} steps, so a step may learn less)", steps);
  if (!equal.empty()) text += fmt::format("; equally fast: {}", fmt::join(equal, ", "));
  if (!undecided.empty()) text += fmt::format("; undecided: {}", fmt::join(undecided, ", "));
  return text + ".\n";
}

Table EffectsTable(const Ranking& ranking) {
  const InputEffects& found = *ranking.deciding;
  Table table{.title = fmt::format("Inputs that decide between {} and {} ({})",
                                   ranking.methods.front().cell.method, ranking.second,
                                   SettingOf(ranking.workers, ranking.density)),
              .columns = {"input", "declared", "share", "ratio at its ends", "measure it with"}};
  for (const InputEffect& each : found.effects) {
    if (table.rows.size() == kEffectsShown) break;
    if (!table.rows.empty() && each.share < kWorthARow) break;
    table.rows.push_back(RowOf(each));
  }
  if (const std::size_t more = found.effects.size() - table.rows.size(); more > 0)
    table.notes.push_back(fmt::format("{} more inputs have smaller shares", more));
  return table;
}

std::string At(const std::string& along, double value) {
  if (along == "inter_node_gbps") return fmt::format("{:g} Gbit/s between nodes", value);
  return along == "workers" ? fmt::format("{:g} workers", value)
                            : fmt::format("density {:g}", value);
}

std::string ChangesText(const Advice& advice) {
  std::string text = "Changes of the fastest method, by declared values:\n\n";
  for (const Sweep& sweep : advice.sweeps) {
    if (sweep.winners.size() < 2) continue;
    std::vector<std::string> said;
    for (const WinnerChange& change : advice.changes) {
      if (change.along != sweep.along || change.workers != sweep.workers ||
          change.density != sweep.density) {
        continue;
      }
      said.push_back(fmt::format("{} at {}, {} at {}", change.before, At(change.along, change.from),
                                 change.after, At(change.along, change.to)));
    }
    text += fmt::format("* {}, from {} to {}: {}\n", SettingOf(sweep.workers, sweep.density),
                        At(sweep.along, sweep.winners.front().first),
                        At(sweep.along, sweep.winners.back().first),
                        said.empty() ? sweep.winners.front().second + " throughout"
                                     : fmt::format("{}", fmt::join(said, "; ")));
  }
  if (!advice.fixed_bandwidth.empty())
    text += fmt::format("* bandwidth is not varied: {}\n", advice.fixed_bandwidth);
  return text;
}

std::string Where(const LeftOut& each, const AdviceRequest& request) {
  return each.workers == request.workers
             ? ""
             : fmt::format(" with {} workers", fmt::join(each.workers, ", "));
}

std::string HintsOf(const Ranking& ranking) {
  std::string text;
  for (const auto& [method, exposed] : ranking.exposed)
    text += "* hint: " + ExposedText(method, exposed) + "\n";
  return text;
}

std::string BuffersText(const Advice& advice) {
  if (advice.buffers.empty()) return "";
  const std::string& cluster = advice.rankings.front().methods.front().cell.cluster;
  if (advice.buffers == kBuffersNames[0]) {
    return fmt::format("buffers: {} bytes, which each rank keeps: {} has buffers = \"{}\"\n\n",
                       advice.buffer_bytes, cluster, advice.buffers);
  }
  std::vector<std::string> said;
  for (const Ranking& ranking : advice.rankings) {
    const std::string text =
        fmt::format("{:.3g} ms with {} workers", 1e3 * ranking.broadcast_seconds, ranking.workers);
    if (std::ranges::find(said, text) == said.end()) said.push_back(text);
  }
  return fmt::format(
      "buffers: {} bytes are broadcast before each forward pass, but with local steps ({} has "
      "buffers = \"{}\"): {}\n\n",
      advice.buffer_bytes, cluster, advice.buffers, fmt::join(said, ", "));
}

// The facts in every answer about the cells that it compares.
json SubjectJson(const Advice& advice) {
  const CellConfig& cell = advice.rankings.front().methods.front().cell;
  return {{"workload", cell.workload},
          {"cluster", cell.cluster},
          {"batch_per_worker", cell.batch_per_worker}};
}

json MemoryJson(const CardMemory& memory) {
  if (memory.card_gbytes <= 0) return {};
  return {{"card_gbytes", memory.card_gbytes},
          {"filled_gbytes", memory.filled_gbytes},
          {"batch_that_fills_half", memory.larger_batch > 0 ? json(memory.larger_batch) : json()}};
}

json BuffersJson(const Advice& advice) {
  if (advice.buffers.empty()) return {};
  json seconds = json::array();
  for (const Ranking& ranking : advice.rankings) seconds.push_back(ranking.broadcast_seconds);
  return {{"broadcast_bytes", advice.buffer_bytes},
          {"by", advice.buffers},
          {"seconds", std::move(seconds)}};
}

json DiagramJson(const Advice& advice, const PhaseDiagram& phase) {
  json points = json::array();
  for (const PhasePoint& each : phase.points) {
    points.push_back({{"inter_node_gbps", each.bandwidth * phase.inter_node_gbps},
                      {"workers", each.workers},
                      {"winner", each.winner},
                      {"undecided", each.undecided},
                      {"over_dense", each.over_dense > 0 ? json(each.over_dense) : json()}});
  }
  json diagram = SubjectJson(advice);
  diagram.update({{"density", advice.request.densities.front()},
                  {"inter_node_gbps", phase.inter_node_gbps},
                  {"draws", kDraws},
                  {"points", std::move(points)}});
  return diagram;
}

json NeededJson(const Advice& advice, const std::vector<NeededRates>& rates) {
  json methods = json::array();
  for (const NeededRates& each : rates) {
    json gbps = json::array();
    for (const auto& rate : each.gbps) gbps.push_back(rate ? json(*rate) : json());
    methods.push_back({{"method", each.method},
                       {"window_steps", each.window_steps},
                       {"gbps", std::move(gbps)},
                       {"naive_gbps", each.naive_gbps}});
  }
  return {{"workers", advice.request.workers.back()},
          {"utilisations", kUtilisations},
          {"methods", std::move(methods)}};
}

std::string TextOf(const json& value) {
  return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string TimesText(const Interval& times) {
  if (!times.has_bounds()) return fmt::format("{:.4g}x", times.value);
  return fmt::format("{:.4g}x [{:.4g}, {:.4g}]", times.value, times.low, times.high);
}

std::string AdviceText(const Advice& advice) {
  const CellConfig& cell = advice.rankings.front().methods.front().cell;
  std::string text = fmt::format(
      "{} on {}, batch {} a worker: modelled; {}\n\n", advice.label, cell.cluster,
      cell.batch_per_worker,
      advice.bands
          ? fmt::format("bands are {} draws of {} without the highest and the lowest, paired by "
                        "draw",
                        kDraws, advice.declared ? "the cluster's inputs" : "measured times")
          : "without bands, since the profile states no errors of measurement");
  if (const std::string note = NoteOn(advice.memory, cell.batch_per_worker); !note.empty())
    text += "note: " + note + "\n\n";
  text += BuffersText(advice);
  for (const Ranking& ranking : advice.rankings) text += VerdictText(ranking);
  for (const Ranking& ranking : advice.rankings) {
    text += "\n" + Render(RankingTable(ranking, advice.unit), TableFormat::kMarkdown);
    if (ranking.deciding && !ranking.deciding->effects.empty())
      text += "\n" + Render(EffectsTable(ranking), TableFormat::kMarkdown);
    if (!ranking.exposed.empty()) text += "\n" + HintsOf(ranking);
  }
  text += "\n" + ChangesText(advice);
  if (!advice.left_out.empty()) text += "\nLeft out:\n\n";
  for (const LeftOut& each : advice.left_out)
    text += fmt::format("* {}{}: {}\n", each.method, Where(each, advice.request), each.reason);
  return text;
}

std::string RatesText(const Advice& advice, const std::vector<NeededRates>& rates) {
  Table table{.title = fmt::format(
                  "Gbit/s of a network card for a utilisation, {}",
                  SettingOf(advice.request.workers.back(), advice.request.densities.front())),
              .columns = {"method", "synchronises"}};
  for (const double wanted : kUtilisations)
    table.columns.push_back(fmt::format("{:g} %", 100 * wanted));
  table.columns.push_back("95 %, by bytes alone");
  const auto words = [](const std::optional<double>& gbps) {
    return gbps ? fmt::format("{:.3g}", *gbps) : "never";
  };
  for (const NeededRates& each : rates) {
    std::vector<std::string> row = {
        each.method, each.window_steps > 1 ? fmt::format("once in {} steps", each.window_steps)
                                           : "in every step"};
    for (const auto& gbps : each.gbps) row.push_back(words(gbps));
    row.push_back(words(each.naive_gbps.at(3)));
    table.rows.push_back(std::move(row));
  }
  return "\n" + Render(table, TableFormat::kMarkdown) +
         "\nUtilisation is the share of forward, backward and update in a step. By bytes alone: a "
         "step waits for all bytes that are sent, but for those that have the steps of a delay, "
         "and for nothing else. Methods with local steps do not learn the same in a step.\n";
}

std::string PhaseJson(const Advice& advice, const PhaseDiagram& phase) {
  return TextOf(DiagramJson(advice, phase));
}

std::string RatesJson(const Advice& advice, const std::vector<NeededRates>& rates) {
  json found = SubjectJson(advice);
  found.update(NeededJson(advice, rates));
  found["density"] = advice.request.densities.front();
  return TextOf(found);
}

std::string AdviceJson(const Advice& advice, const PhaseDiagram* phase,
                       const std::vector<NeededRates>* rates, const json& trace) {
  json rankings = json::array();
  for (const Ranking& ranking : advice.rankings) {
    json methods = json::array();
    for (const RankedMethod& each : ranking.methods) {
      methods.push_back(
          {{"method", each.cell.method},
           {"sparsifier", each.cell.sparsifier},
           {"config_hash", ConfigHash(each.cell)},
           {"step_seconds", each.step_seconds},
           {"formulas",
            {{"longest_seconds", each.formulas.longest()}, {"sum_seconds", each.formulas.sum()}}},
           {"throughput", BandJson(each.throughput)},
           {"of_best", BandJson(each.over_best)},
           {"over_dense", each.over_dense ? BandJson(*each.over_dense) : json()},
           {"equal", each.equal},
           {"undecided", each.undecided}});
    }
    json exposed = json::object();
    for (const auto& [method, share] : ranking.exposed) {
      exposed[method] = {{"seconds", share.seconds},
                         {"links_alone_seconds", share.links_alone_seconds},
                         {"group", share.group}};
    }
    rankings.push_back({{"workers", ranking.workers},
                        {"density", ranking.density},
                        {"methods", std::move(methods)},
                        {"second", ranking.second.empty() ? json() : json(ranking.second)},
                        {"deciding", ranking.deciding ? WriteRecord(*ranking.deciding) : json()},
                        {"mostly_not_links", std::move(exposed)}});
  }
  json sweeps = json::array();
  for (const Sweep& sweep : advice.sweeps) {
    json winners = json::array();
    for (const auto& [at, method] : sweep.winners) winners.push_back({at, method});
    sweeps.push_back({{"along", sweep.along},
                      {"workers", sweep.workers > 0 ? json(sweep.workers) : json()},
                      {"density", sweep.density > 0 ? json(sweep.density) : json()},
                      {"winners", std::move(winners)}});
  }
  json left_out = json::array();
  for (const LeftOut& each : advice.left_out) {
    left_out.push_back(
        {{"method", each.method}, {"workers", each.workers}, {"reason", each.reason}});
  }
  json answer = SubjectJson(advice);
  answer.update({{"unit", advice.unit},
                 {"draws", advice.bands ? kDraws : 0},
                 {"rankings", std::move(rankings)},
                 {"sweeps", std::move(sweeps)},
                 {"bandwidth_not_varied", advice.fixed_bandwidth},
                 {"card_memory", MemoryJson(advice.memory)},
                 {"buffers", BuffersJson(advice)},
                 {"left_out", std::move(left_out)}});
  if (!trace.is_null()) answer["trace"] = trace;
  if (phase != nullptr) answer["phase"] = DiagramJson(advice, *phase);
  if (rates != nullptr) answer["needed_rates"] = NeededJson(advice, *rates);
  return TextOf(answer);
}

std::string AdviceToml(const Advice& advice, const DeclaredCluster* cluster) {
  const AdviceRequest& request = advice.request;
  const CellConfig& cell = advice.rankings.front().methods.front().cell;
  std::set<std::string> methods;
  for (const Ranking& ranking : advice.rankings) {
    for (const RankedMethod& each : ranking.methods) methods.insert(each.cell.method);
  }
  std::set<std::string> bars;
  if (cluster != nullptr) {
    for (const ReferenceStep& step : cluster->references) {
      for (const CalibrationBar& bar : BarsOf(step)) bars.insert(bar.name());
    }
  }
  const auto quoted = [](const auto& names) {
    std::vector<std::string> list;
    for (const std::string& name : names) list.push_back(json(name).dump());
    return fmt::format("[{}]", fmt::join(list, ", "));
  };
  std::string text = fmt::format("id    = \"advice/{}-on-{}\"\n", advice.label, request.cluster);
  text += fmt::format("title = \"Which method trains {} faster on {}\"\n", advice.label,
                      request.cluster);
  if (!bars.empty()) text += fmt::format("calibration = {}\n", quoted(bars));
  text += fmt::format("\n[defaults]\nmode = \"modelled\"\ncluster = {}\nworkload = {}\n",
                      json(request.cluster).dump(), json(request.workload).dump());
  text += fmt::format("batch_per_worker = {}\n", cell.batch_per_worker);
  if (request.link) {
    text += fmt::format("link = {{ gbps = {:g}, alpha_us = {:g} }}\n", request.link->gbps,
                        request.link->alpha_us);
  }
  if (request.sparsifier)
    text += fmt::format("sparsifier = {}\n", json(*request.sparsifier).dump());
  text += fmt::format("\n[[axis]]\nworkers = [{}]\n", fmt::join(request.workers, ", "));
  text += fmt::format("[[axis]]\ndensity = [{}]\n", fmt::join(request.densities, ", "));
  text += fmt::format("[[axis]]\nmethod = {}\n", quoted(methods));
  for (const LeftOut& each : advice.left_out) {
    if (!methods.contains(each.method)) continue;
    text += fmt::format("\n[[exclude]]\nwhen = {{ method = {}, workers = [{}] }}\nreason = {}\n",
                        json(each.method).dump(), fmt::join(each.workers, ", "),
                        json(each.reason).dump());
  }
  text += "\n[[figure]]\nkind = \"grouped_bars\"\nx = \"workers\"\ny = \"throughput\"\n";
  return text;
}

}  // namespace sparfuse::harness
