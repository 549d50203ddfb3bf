#include "harness/records/quiet.hpp"

#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
RecordKeys KeysOf<QuietLimits>() {
  using L = QuietLimits;
  static constexpr auto kKeys = KeyTable<L>(
      Key<&L::other_cpu>({.name = "other_cpu"}), Key<&L::stolen>({.name = "stolen"}),
      Key<&L::slowdown>({.name = "slowdown"}), Key<&L::link>({.name = "link", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<QuietLink>() {
  using L = QuietLink;
  static constexpr auto kKeys =
      KeyTable<L>(Key<&L::label_gbps>({.name = "label_gbps", .unit = "Gbit/s"}),
                  Key<&L::before_gbps>({.name = "before_gbps", .unit = "Gbit/s"}),
                  Key<&L::after_gbps>({.name = "after_gbps", .unit = "Gbit/s"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<QuietCards>() {
  using C = QuietCards;
  static constexpr auto kKeys =
      KeyTable<C>(Key<&C::other_processes>({.name = "other_processes"}),
                  Key<&C::held_down_by>({.name = "held_down_by", .leaves = Leaves::kWords}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Quiet>() {
  using Q = Quiet;
  constexpr auto judged = [](const Q& quiet) { return quiet.limits.has_value(); };
  static constexpr auto kKeys = KeyTable<Q>(
      Key<&Q::other_cpu>({.name = "other_cpu", .unit = "of the cores"}),
      Key<&Q::stolen>({.name = "stolen", .unit = "of the cores"}),
      Key<&Q::resolution>({.name = "resolution", .unit = "of the cores"}),
      Key<&Q::seconds>({.name = "seconds", .unit = "seconds"}), Key<&Q::cores>({.name = "cores"}),
      Key<&Q::quota>({.name = "quota", .unit = "cores"}),
      Key<&Q::clock_mhz>({.name = "clock_mhz", .unit = "MHz"}), Key<&Q::load>({.name = "load"}),
      Key<&Q::pressure>({.name = "pressure"}),
      Key<&Q::own_cpu_seconds>({.name = "own_cpu_seconds", .unit = "seconds"}),
      Key<&Q::involuntary_switches>({.name = "involuntary_switches"}),
      Key<&Q::loop_seconds>({.name = "loop_seconds", .unit = "seconds"}),
      Key<&Q::cards>({.name = "cards"}), Key<&Q::link>({.name = "link", .optional = true}),
      Key<&Q::limits>({.name = "limits", .optional = true}),
      Key<&Q::slowdown>({.name = "slowdown"}).If(judged),
      Key<&Q::disturbed>({.name = "disturbed"}).If(judged),
      Key<&Q::causes>({.name = "causes"}).If(judged),
      Key<&Q::why>({.name = "why", .leaves = Leaves::kWords}).If(judged));
  return kKeys;
}

json ToJson(const std::optional<Quiet>& quiet) { return quiet ? WriteRecord(*quiet) : json(); }

std::optional<Quiet> QuietOf(const json& stored, std::string_view whole) {
  std::optional<Quiet> quiet;
  if (!stored.is_null()) ReadRecord(stored, KeyPlace(whole), quiet.emplace());
  return quiet;
}

}  // namespace sparfuse::harness
