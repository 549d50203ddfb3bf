// Puts the findings of explanation.cpp into words: one line with the conclusion, then tables.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "harness/records/cell_keys.hpp"
#include "harness/report/explanation.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::size_t kWaitsShown = 8;

std::string PartName(const std::string& part) {
  if (part == "sparsify") return "sparsification";
  if (part == "exposed_communication") return "exposed communication";
  if (part == "decompress") return "decompression";
  return part;
}

std::string Seconds(double value) { return value == 0 ? "0 s" : Quantity(value, "s"); }

const char* MeaningOf(const std::string& mode) {
  if (mode == "measured") return "real ranks and data on the machine's own links";
  if (mode == "emulated") return "real ranks and data over a link slowed down on purpose";
  return "computed by discrete-event simulation, nothing was timed";
}

// Milliseconds to two digits, without minus 0.
double Milliseconds(double seconds) { return std::round(1e5 * seconds) / 100 + 0.0; }
std::string MsText(double seconds) { return fmt::format("{:.2f}", Milliseconds(seconds)); }
std::string MsChange(double seconds) { return fmt::format("{:+.2f}", Milliseconds(seconds)); }

// The interval; kNone for computed numbers.
std::string BoundsText(const Explanation& found, const StepDifference& difference) {
  if (!difference.low || !found.within_noise()) return kNone;
  return fmt::format("[{}, {}] ms", MsChange(*difference.low), MsChange(*difference.high));
}

std::string ShareText(double part, double whole) {
  return whole == 0 ? kNone : fmt::format("{} %", std::lround(100 * part / whole));
}

std::string Count(std::uint64_t count, const char* what) {
  return fmt::format(
      "{} {}{}", count < 1000 ? std::to_string(count) : Quantity(static_cast<double>(count), "1"),
      what, count == 1 ? "" : "s");
}

std::string BlocksText(std::size_t least, std::size_t most) {
  const std::string n =
      least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
  return fmt::format("n = {} block{}", n, most == 1 ? "" : "s");
}

std::string Rendered(const Table& table) {
  std::string text = Render(table, TableFormat::kAligned);
  text.pop_back();  // the last line feed
  return text;
}

std::string PartsTable(const Explanation& found) {
  Table table{.columns = {"ms a step", found.of.name, found.over.name, "difference", "share",
                          "95 % interval of it"},
              .alignment = "lrrrrr"};
  const double change = found.step.difference.value;
  const auto add = [&](const std::string& name, const PartOfStep& part) {
    table.rows.push_back({name, MsText(part.of), MsText(part.over), MsChange(part.difference.value),
                          ShareText(part.difference.value, change),
                          BoundsText(found, part.difference)});
  };
  for (const PartOfStep& part : found.parts) add(PartName(part.name), part);
  add("step (median)", found.step);
  return Rendered(table);
}

// The exchanges of each side in a step, and the work beside its backward pass.
std::string FactsTable(const Explanation& found) {
  Table table{.columns = {"", found.of.name, found.over.name}, .alignment = "lrr"};
  const auto add_ms = [&](const char* name, double of, double over) {
    table.rows.push_back({name, MsText(of), MsText(over)});
  };
  for (const auto& [metric, name, unit] : {std::tuple{"exchanges", "exchanges a step", "1"},
                                           {"messages_sent", "messages sent", "1"},
                                           {"payload_bytes", "payload", "B"},
                                           {"sent_bytes", "sent", "B"},
                                           {"achieved_density", "achieved density", "1"}}) {
    const auto text = [&](const ExplainedSide& side) {
      const auto& value = side.facts.at(metric);
      return value ? Quantity(*value, unit) : kNone;
    };
    if (found.of.facts.at(metric) || found.over.facts.at(metric))
      table.rows.push_back({name, text(found.of), text(found.over)});
  }
  const auto &of = found.of.traces.beside_backward, &over = found.over.traces.beside_backward;
  if (of && over) {
    for (const auto& [member, name] :
         {std::pair{&BesideBackward::exchanges, "exchanges during backward, ms"},
          {&BesideBackward::lanes, "other lanes during backward, ms"},
          {&BesideBackward::other_lanes_sparsify, "sparsification on other lanes, ms"}}) {
      if ((*of).*member != 0 || (*over).*member != 0) add_ms(name, (*of).*member, (*over).*member);
    }
  }
  if (found.align_wait.of != 0 || found.align_wait.over != 0)
    add_ms("agreeing on a buffer (beside the sum), ms", found.align_wait.of, found.align_wait.over);
  add_ms("lower quartile of the steps, ms", found.of.quartiles[0], found.over.quartiles[0]);
  add_ms("upper quartile, ms", found.of.quartiles[1], found.over.quartiles[1]);
  return Rendered(table);
}

std::string WaitedFor(const StepWait& wait, const ExplainedSide& side) {
  const std::string label = wait.unit.empty() ? "the exchange" : wait.unit;
  if (wait.what == "exchange") return label;
  if (wait.what == "negotiate")
    return "negotiation" + (wait.unit.empty() ? "" : " of " + wait.unit);
  if (wait.what == "local work")
    return "work of another lane: " + (wait.unit.empty() ? "unnamed" : wait.unit);
  if (wait.what == "other ranks") return "other ranks, before " + label;
  if (wait.what == "after") return "nothing under way, after the last exchange";
  // A modelled exchange begins when all ranks have arrived.
  return (side.mode == "modelled" ? "ranks still to come to " : "nothing under way, before ") +
         label;
}

std::string TensorsText(const StepWait& wait) {
  if (!wait.tensors || wait.tensors->names.empty()) return kNone;
  const UnitTensors& tensors = *wait.tensors;
  const auto& names = tensors.names;
  std::string text = fmt::format(
      "{}{}: {}, {}", wait.unit.ends_with(", dense") ? "the dense of " : "", names.size(),
      names.size() > 1 ? names.front() + " to " + names.back() : names.front(),
      Count(tensors.elements, "element"));
  if (tensors.path) text += fmt::format(", by path {}", *tensors.path);
  if (!tensors.partitions) return text;
  const auto parts = static_cast<std::uint64_t>(*tensors.partitions);
  return text + (parts == 0 ? ", whole" : ", sparsified in " + Count(parts, "part"));
}

// The waits of the compute lane in the steps with spans.
std::string WaitsTable(const ExplainedSide& side) {
  Table table{.columns = {side.name, "ms a step", "until the last rank came", "tensors"},
              .alignment = "lrrl"};
  const auto add = [&](const std::string& what, std::span<const StepWait> waits,
                       const std::string& tensors) {
    double seconds = 0, late = 0;
    for (const StepWait& wait : waits) {
      seconds += wait.seconds;
      late += wait.until_last_rank_seconds;
    }
    table.rows.push_back({what, fmt::format("{:.3f}", 1e3 * seconds),
                          side.mode == "modelled" ? kNone : fmt::format("{:.3f}", 1e3 * late),
                          tensors});
  };
  std::vector<StepWait> waits = side.traces.waits;
  std::erase_if(waits, [](const StepWait& wait) { return wait.seconds <= 0; });
  const std::span<const StepWait> all = waits;
  const std::size_t shown = std::min(kWaitsShown, all.size());
  for (std::size_t i = 0; i < shown; ++i)
    add(WaitedFor(all[i], side), all.subspan(i, 1), TensorsText(all[i]));
  if (shown < all.size()) add(Count(all.size() - shown, "other"), all.subspan(shown), "");
  return Rendered(table);
}

// The differing keys that do not belong to methods and appear nowhere else, in the order of
// figures.
std::vector<std::string> UnlikeLines(const Explanation& found) {
  std::vector<std::string> lines;
  const bool modes = found.unlike_in.contains("mode");
  for (const std::string& key : PanelKeys()) {
    const auto unlike = found.unlike_in.find(key);
    if (unlike == found.unlike_in.end() || (modes && (key == "mode" || key == "cluster"))) continue;
    lines.push_back(fmt::format("differs: {} ({} against {})", key, unlike->second[0].dump(),
                                unlike->second[1].dump()));
  }
  return lines;
}

// How the numbers were obtained, one line each.
std::vector<std::string> ObtainedLines(const Explanation& found) {
  std::vector<std::string> lines;
  std::vector<std::string> modes = {found.of.mode};
  if (found.over.mode != found.of.mode) modes.push_back(found.over.mode);
  for (const std::string& mode : modes) {
    std::set<std::string> machines;
    for (const ExplainedSide* side : {&found.of, &found.over})
      if (side->mode == mode) machines.insert(side->hardware);
    lines.push_back(fmt::format("{}: {}; {}", mode, MeaningOf(mode), fmt::join(machines, " and ")));
  }
  for (std::string& line : UnlikeLines(found)) lines.push_back(std::move(line));
  const auto [least, most] = std::minmax({found.of.trials.size(), found.over.trials.size()});
  std::string sample = BlocksText(least, most);
  if (!found.within_noise()) {
    sample += "; computed, so without an interval";
  } else if (!found.paired) {
    sample += "; not paired, so without an interval";
  } else {
    sample += least < kPreliminaryBelowBlocks ? "; paired; preliminary" : "; paired";
  }
  lines.push_back(sample);
  for (const ExplainedSide* side : {&found.of, &found.over}) {
    if (!side->blocks_left_out.empty())
      lines.push_back(fmt::format("blocks of {} alone: {}", side->name,
                                  fmt::join(side->blocks_left_out, ", ")));
  }
  return lines;
}

}  // namespace

std::optional<bool> Explanation::within_noise() const {
  if (of.mode == "modelled" && over.mode == "modelled") return std::nullopt;
  const StepDifference& change = step.difference;
  return !change.low || (*change.low <= 0 && 0 <= *change.high);
}

std::string ConclusionOf(const Explanation& found) {
  const std::string &of = found.of.name, &over = found.over.name;
  const StepDifference& change = found.step.difference;
  const auto noise = found.within_noise();
  if (change.value == 0)
    return fmt::format("{} and {} take the same {} a step.", of, over, Seconds(found.step.of));
  const bool faster = change.value < 0;
  std::string head;
  if (noise.value_or(false) && change.low) {
    head =
        fmt::format("{} and {} may be equally fast: the interval of the difference, {}, contains 0",
                    of, over, BoundsText(found, change));
  } else {
    const double ratio = faster ? found.step.over / found.step.of : found.step.of / found.step.over;
    head = fmt::format("{} is {:.1f} % {} than {}", of, 100 * (ratio - 1),
                       faster ? "faster" : "slower", over);
    if (noise.value_or(false))
      head += found.paired ? ", by one block each" : ", without an interval";
  }
  if (found.unlike_in.contains("mode"))
    head += fmt::format(" (unlike numbers: {} against {})", found.of.mode, found.over.mode);
  const double sign = faster ? -1 : 1;
  const PartOfStep& most = *std::max_element(
      found.parts.begin(), found.parts.end(), [&](const PartOfStep& a, const PartOfStep& b) {
        return sign * a.difference.value < sign * b.difference.value;
      });
  const auto with_sign = [](double seconds) {
    return (seconds < 0 ? "-" : "+") + Seconds(std::abs(seconds));
  };
  return fmt::format("{}: {} {}, the step {}.", head, PartName(most.name),
                     with_sign(most.difference.value), with_sign(change.value));
}

std::string WordsOf(const Explanation& found, const std::vector<std::string>& inputs) {
  std::vector<std::string> blocks = {ConclusionOf(found), PartsTable(found), FactsTable(found)};
  blocks.insert(blocks.end(), inputs.begin(), inputs.end());
  for (const ExplainedSide* side : {&found.of, &found.over}) {
    const TracedMeans& traces = side->traces;
    if (traces.blocks == 0) {
      blocks.push_back(side->name + ": no spans were kept.");
      continue;
    }
    blocks.push_back(traces.exposed_seconds <= 0
                         ? side->name + ": the compute lane never waited in the traced steps."
                         : WaitsTable(*side));
    blocks.push_back(fmt::format("(traced: step {} of {})", fmt::join(traces.steps, ", "),
                                 BlocksText(traces.blocks, traces.blocks)));
  }
  blocks.push_back(fmt::format("{}", fmt::join(ObtainedLines(found), "\n")));
  return fmt::format("{}\n", fmt::join(blocks, "\n\n"));
}

}  // namespace sparfuse::harness
