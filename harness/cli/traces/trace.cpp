// Shows what traces of training say: `sparfuse trace`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/verbs.hpp"
#include "harness/traces/trace_facts.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

std::string Ms(const Spread& us) {
  return us.low == us.high ? fmt::format("{:.3f} ms", us.median / 1e3)
                           : fmt::format("{:.3f} ms [{:.3f}, {:.3f}]", us.median / 1e3,
                                         us.low / 1e3, us.high / 1e3);
}

std::string Us(const std::optional<Spread>& us) {
  if (!us) return kNone;
  return fmt::format("{:.1f} us [{:.1f}, {:.1f}] of {}", us->median, us->low, us->high, us->n);
}

Table StepTable(const TraceFacts& facts) {
  Table table;
  table.columns = {"step", "time", "on the host"};
  const auto add = [&](const char* what, const std::optional<Spread>& time,
                       const std::optional<Spread>& host) {
    table.rows.push_back({what, time ? Ms(*time) : kNone, host ? Ms(*host) : kNone});
  };
  add("period", facts.period_us, {});
  add("forward", facts.forward_us, facts.host.forward_us);
  add("backward", facts.backward_us, facts.host.backward_us);
  add("update", facts.update_us, facts.host.update_us);
  add("exposed exchanges", facts.exposed_us, {});
  table.rows.push_back(
      {"rest", facts.rest_us ? fmt::format("{:.3f} ms", *facts.rest_us / 1e3) : std::string(kNone),
       kNone});
  table.notes = facts.notes;
  return table;
}

Table HostTable(const TraceFacts& facts) {
  Table table;
  table.columns = {"the host spends", "median [least, most]"};
  table.rows = {{"on a hook of a tensor, without its exchange", Us(facts.host.hook_us_a_tensor)},
                {"on the call of an exchange", Us(facts.host.exchange_call_us)},
                {"on copying a tensor back", Us(facts.host.copy_back_us_a_tensor)}};
  return table;
}

Table ExchangeTable(const TraceFacts& facts) {
  Table table;
  table.columns = {"exchange", "elements", "bytes", "begins", "takes", "bus at least"};
  table.alignment = "lrrrrr";
  for (const TracedExchange& each : facts.exchanges) {
    table.rows.push_back(
        {each.collective, each.elements ? fmt::format("{}", *each.elements) : kNone,
         each.bytes ? fmt::format("{:.0f}", *each.bytes) : kNone,
         fmt::format("{:.3f} ms", each.begin_us / 1e3), Ms(each.us),
         each.bus_gbytes_per_s_at_low ? fmt::format("{:.3f} GB/s", *each.bus_gbytes_per_s_at_low)
                                      : kNone});
  }
  return table;
}

Table TransferTable(const TransferFacts& transfers) {
  Table table;
  table.title = fmt::format("Transfers of ranks {}: of each exchange the shortest over ranks",
                            fmt::join(transfers.ranks, ", "));
  table.columns = {"exchange", "elements", "bytes", "takes"};
  table.alignment = "lrrr";
  for (const TracedTransfer& each : transfers.exchanges) {
    table.rows.push_back({each.collective, fmt::format("{}", each.elements),
                          fmt::format("{:.0f}", each.bytes), Ms(each.transfer_us)});
  }
  return table;
}

std::string ShapeText(const TracedTensor& tensor) {
  return tensor.shape ? fmt::format("{}", fmt::join(*tensor.shape, " x ")) : "no shape";
}

void PrintFacts(const TraceFacts& facts) {
  std::string device = facts.device == "cpu" ? "on CPUs" : facts.bound;
  if (facts.idle_share_of_backward)
    device +=
        fmt::format(": {:.0f} % of backward no kernel runs", 100 * *facts.idle_share_of_backward);
  fmt::print("{}: rank {} of {}, {}\n", facts.file, facts.rank, facts.world, device);
  fmt::print("{}{} tensors, ready from {:.3f} ms ({}) to {:.3f} ms ({}); steps used: {} of {}\n\n",
             facts.hardware.empty() ? "" : facts.hardware + "; ", facts.tensors.size(),
             facts.tensors.front().ready_us / 1e3, ShapeText(facts.tensors.front()),
             facts.tensors.back().ready_us / 1e3, ShapeText(facts.tensors.back()),
             fmt::join(facts.steps_used, ", "), facts.steps_found.size());
  fmt::print("{}\n", Render(StepTable(facts), TableFormat::kMarkdown));
  if (facts.host.hook_us_a_tensor || facts.host.exchange_call_us)
    fmt::print("{}\n", Render(HostTable(facts), TableFormat::kMarkdown));
  if (!facts.exchanges.empty())
    fmt::print("{}\n", Render(ExchangeTable(facts), TableFormat::kMarkdown));
  for (const TracedBroadcast& each : facts.before_backward) {
    fmt::print(
        "before backward: {:g} {} a step, {:.0f} bytes, which a model without buffers has "
        "not\n",
        each.a_step, each.collective, each.bytes_a_step);
  }
}

}  // namespace

int TraceVerb(Program& program, const TraceRequest& request) {
  std::vector<TraceFacts> ranks;
  for (const std::string& file : request.files)
    ranks.push_back(ReadTraceFacts(file, request.options));
  std::optional<TransferFacts> transfers;
  if (ranks.size() > 1) transfers = TransfersOf(ranks);
  if (program.json()) {
    if (!transfers) {
      PrintJson(ToJson(ranks.front()));
      return kDone;
    }
    json all = {{"ranks", json::array()}, {"transfers", ToJson(*transfers)}};
    for (const TraceFacts& each : ranks) all["ranks"].push_back(ToJson(each));
    PrintJson(all);
    return kDone;
  }
  for (const TraceFacts& each : ranks) PrintFacts(each);
  if (transfers) fmt::print("\n{}", Render(TransferTable(*transfers), TableFormat::kMarkdown));
  return kDone;
}

}  // namespace sparfuse::harness
