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

}  // namespace sparfuse::harness
