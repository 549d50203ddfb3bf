#include "harness/records/machine.hpp"

#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
RecordKeys KeysOf<CardClock>() {
  using C = CardClock;
  static constexpr auto kKeys =
      KeyTable<C>(Key<&C::now_mhz>({.name = "mhz", .unit = "MHz"}),
                  Key<&C::max_mhz>({.name = "maximum_mhz", .unit = "MHz"}),
                  Key<&C::application_mhz>({.name = "application_mhz", .unit = "MHz"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<CardState>() {
  using C = CardState;
  static constexpr auto kKeys = KeyTable<C>(
      Key<&C::index>({.name = "index"}), Key<&C::name>({.name = "name", .empty_is_null = true}),
      Key<&C::uuid>({.name = "uuid", .later = true, .empty_is_null = true}),
      Key<&C::pci>({.name = "pci", .later = true, .empty_is_null = true}),
      Key<&C::sm_clock>({.name = "sm_clock", .later = true}),
      Key<&C::memory_clock>({.name = "memory_clock", .later = true}),
      Key<&C::held_down_by>({.name = "held_down_by", .leaves = Leaves::kWords, .later = true}),
      Key<&C::ecc>({.name = "ecc", .later = true}),
      Key<&C::power_limit_watts>({.name = "power_limit_watts", .unit = "W", .later = true}),
      Key<&C::mig>({.name = "mig", .later = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<CardPair>() {
  using P = CardPair;
  static constexpr auto kKeys = KeyTable<P>(Key<&P::cards>({.name = "cards"}),
                                            Key<&P::kind>({.name = "kind", .empty_is_null = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<CardStates>() {
  using S = CardStates;
  static constexpr auto kKeys =
      KeyTable<S>(Key<&S::driver>({.name = "driver", .empty_is_null = true}),
                  Key<&S::cuda>({.name = "cuda", .empty_is_null = true}),
                  Key<&S::cards>({.name = "cards"}), Key<&S::topology>({.name = "topology"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Machine>() {
  using M = Machine;
  constexpr auto measured = [](const M& machine) { return machine.hardware.empty(); };
  static constexpr auto kKeys = KeyTable<M>(
      Key<&M::hardware>({.name = "hardware", .leaves = Leaves::kWords, .optional = true}),
      Key<&M::source>({.name = "source", .leaves = Leaves::kWords, .optional = true}),
      Key<&M::placement>({.name = "placement", .optional = true}),
      Key<&M::communication_threads>({.name = "communication_threads", .leaves = Leaves::kWords})
          .If(measured),
      Key<&M::cores>({.name = "cores"}).If(measured),
      Key<&M::kernels>({.name = "kernels"}).If(measured),
      Key<&M::cuda_devices>({.name = "cuda_devices"}).If(measured),
      Key<&M::cards>({.name = "cards", .leaves = Leaves::kWords, .optional = true}),
      Key<&M::gpus>({.name = "gpus", .optional = true}),
      Key<&M::load_before>({.name = "load_before", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Software>() {
  using S = Software;
  static constexpr auto kKeys = KeyTable<S>(
      Key<&S::compiler>({.name = "compiler", .leaves = Leaves::kWords}),
      Key<&S::cuda_build>({.name = "cuda_build", .leaves = Leaves::kWords}),
      Key<&S::container>({.name = "container", .leaves = Leaves::kWords, .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<SourceState>() {
  using S = SourceState;
  static constexpr auto kKeys =
      KeyTable<S>(Key<&S::commit>({.name = "commit"}), Key<&S::dirty>({.name = "dirty"}));
  return kKeys;
}

json ToJson(const std::optional<CardStates>& states) {
  return states ? WriteRecord(*states) : json();
}
json ToJson(const Machine& machine) { return WriteRecord(machine); }
json ToJson(const Software& software) { return WriteRecord(software); }
json ToJson(const SourceState& source) { return WriteRecord(source); }

Machine MachineIn(const json& stored, std::string_view whole) {
  return RecordOf<Machine>(stored, whole);
}
Software SoftwareIn(const json& stored, std::string_view whole) {
  return RecordOf<Software>(stored, whole);
}
SourceState SourceIn(const json& stored, std::string_view whole) {
  return RecordOf<SourceState>(stored, whole);
}

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
