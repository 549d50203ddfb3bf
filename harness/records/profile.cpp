#include "harness/records/profile.hpp"

#include <algorithm>
#include <numeric>

#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

double BackwardTimes::backward_seconds() const {
  return std::accumulate(tensors.begin(), tensors.end(), 0.0,
                         [](double sum, const ProfiledTensor& t) { return sum + t.seconds; });
}

// [size, seconds] or [size, seconds, shape]
template <>
struct Form<ProfilePoint> {
  static json Write(const ProfilePoint& point, const KeyInfo&, WrittenFor) {
    // Counts are written as integers, except for the far end of a declared curve. Identities hash
    // this form, in which 1e9 differs from 1000000000.
    constexpr double kFar = 1e9;
    json list = {point.size < kFar ? NumberAsWritten(point.size) : json(point.size),
                 NumberAsWritten(point.seconds)};
    if (point.shape) list.push_back(*point.shape);
    return list;
  }
  static void Read(const json& from, const KeyInfo& info, const KeyPlace& place,
                   ProfilePoint& point) {
    const bool good = from.is_array() && (from.size() == 2 || from.size() == 3) &&
                      from[0].is_number() && from[1].is_number();
    if (!good) place.Expected(from, "[size, seconds] or [size, seconds, shape]");
    point = {from[0].get<double>(), from[1].get<double>(), {}};
    if (from.size() == 3) {
      Form<std::vector<std::int64_t>>::Read(from[2], info, KeyPlace(place, "2"),
                                            point.shape.emplace());
    }
  }
  static void Scrub(ProfilePoint&, Leaves, const Scrubber&) {}
  static std::string TypeText(const KeyInfo&) { return "[size, seconds]"; }
  static std::string WhatIsWrong(const KeyInfo&, const json&) { return ""; }
};

// A number, or a list of them.
template <>
struct Form<RelativeError> {
  static json Write(const RelativeError& error, const KeyInfo& info, WrittenFor purpose) {
    return error.of_each ? Form<std::vector<double>>::Write(*error.of_each, info, purpose)
                         : NumberAsWritten(error.of_all);
  }
  static void Read(const json& from, const KeyInfo& info, const KeyPlace& place,
                   RelativeError& error) {
    error = {};
    if (from.is_array()) {
      Form<std::vector<double>>::Read(from, info, place, error.of_each.emplace());
    } else {
      Form<double>::Read(from, info, place, error.of_all);
    }
  }
  static void Scrub(RelativeError&, Leaves, const Scrubber&) {}
  static std::string TypeText(const KeyInfo&) { return "number or list of numbers"; }
  static std::string WhatIsWrong(const KeyInfo&, const json&) { return ""; }
};

template <>
RecordKeys KeysOf<LinkShape>();
template <>
RecordKeys KeysOf<CellConfig>();

template <>
RecordKeys KeysOf<ProfiledTensor>() {
  using T = ProfiledTensor;
  static constexpr auto kKeys = KeyTable<T>(
      Key<&T::name>({.name = "name", .meaning = "name of the parameter"}),
      Key<&T::shape>({.name = "shape", .meaning = "its dimensions"}),
      Key<&T::numel>({.name = "numel",
                      .range = {1, 4'294'967'295},
                      .unit = "elements",
                      .meaning = "number of elements: indices are 32 bits"}),
      Key<&T::seconds>({.name = "seconds", .unit = "s", .meaning = "backward of the tensor"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<BackwardTimes>() {
  using B = BackwardTimes;
  static constexpr auto kKeys = KeyTable<B>(
      Key<&B::steps>({.name = "steps", .meaning = "timed steps"}),
      Key<&B::begin_seconds>({.name = "begin_seconds", .unit = "s", .meaning = "before forward"}),
      Key<&B::forward_seconds>(
          {.name = "forward_seconds", .unit = "s", .meaning = "forward pass of a batch"}),
      Key<&B::tensors>({.name = "tensors", .meaning = "backward of each, in ready order"}),
      Key<&B::tail_seconds>(
          {.name = "tail_seconds", .unit = "s", .meaning = "backward after the last tensor"}),
      Key<&B::update_seconds>({.name = "update_seconds", .unit = "s", .meaning = "optimizer"}),
      Key<&B::hooked_seconds>({.name = "hooked_seconds",
                               .unit = "s",
                               .meaning = "backward with hooks",
                               .optional = true}),
      Key<&B::unhooked_seconds>({.name = "unhooked_seconds",
                                 .unit = "s",
                                 .meaning = "backward without hooks, the sum of the tensors' times",
                                 .optional = true}),
      Key<&B::all_ranks_seconds>({.name = "all_ranks_seconds",
                                  .unit = "s",
                                  .meaning = "a step until all ranks have finished it",
                                  .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<LinkFit>() {
  using F = LinkFit;
  static constexpr auto kKeys = KeyTable<F>(
      Key<&F::alpha_seconds>({.name = "alpha_seconds", .unit = "s", .meaning = "start-up"}),
      Key<&F::alpha_standard_error>({.name = "alpha_standard_error", .unit = "s"}),
      Key<&F::seconds_per_byte>({.name = "seconds_per_byte", .unit = "s"}),
      Key<&F::seconds_per_byte_standard_error>(
          {.name = "seconds_per_byte_standard_error", .unit = "s"}),
      Key<&F::points>({.name = "points", .meaning = "points that were fitted"}),
      Key<&F::relative_residuals>({.name = "relative_residuals", .meaning = "by bytes"}),
      Key<&F::rms_relative_residual>({.name = "rms_relative_residual"}),
      Key<&F::worst_relative_residual>({.name = "worst_relative_residual"}),
      Key<&F::r_squared>({.name = "r_squared"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<MeasuredLink>() {
  using L = MeasuredLink;
  static constexpr auto kKeys = KeyTable<L>(
      // Both are marked later, because a file made by hand has neither.
      Key<&L::link_class>({.name = "class", .meaning = "intra_node or inter_node", .later = true}),
      Key<&L::round_seconds>({.name = "round_seconds", .unit = "s", .meaning = "by bytes"}),
      Key<&L::fit>({.name = "fit", .meaning = "null if too few times are above 0", .later = true}),
      Key<&L::seconds_per_extra_message>({.name = "seconds_per_extra_message",
                                          .unit = "s",
                                          .meaning = "each further message at once"}),
      Key<&L::cpu_seconds>({.name = "cpu_seconds", .unit = "s", .meaning = "once an exchange"}),
      Key<&L::round_cpu_seconds>(
          {.name = "round_cpu_seconds", .unit = "s", .meaning = "processor time of a round"}),
      Key<&L::message_cpu_seconds>({.name = "message_cpu_seconds",
                                    .unit = "s",
                                    .meaning = "processor time of each further message of a round",
                                    .optional = true}),
      Key<&L::cpu_fraction>(
          {.name = "cpu_fraction", .meaning = "processor's share of an exchange's time"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<DeclaredLink>() {
  using L = DeclaredLink;
  static constexpr auto kKeys = KeyTable<L>(
      Key<&L::alpha_seconds>({.name = "alpha_seconds", .unit = "s"}),
      Key<&L::seconds_per_byte>({.name = "seconds_per_byte", .unit = "s"}),
      Key<&L::seconds_per_extra_message>({.name = "seconds_per_extra_message", .unit = "s"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<AllReduceCurves>() {
  using A = AllReduceCurves;
  static constexpr auto kKeys =
      KeyTable<A>(Key<&A::start_seconds>({.name = "start_seconds", .unit = "s"}),
                  Key<&A::intra_node>({.name = "intra_node", .unit = "s", .optional = true}),
                  Key<&A::inter_node>({.name = "inter_node", .unit = "s", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<BroadcastTimes>() {
  using B = BroadcastTimes;
  static constexpr auto kKeys =
      KeyTable<B>(Key<&B::bytes>({.name = "bytes", .unit = "bytes"}),
                  Key<&B::start_seconds>({.name = "start_seconds", .unit = "s"}),
                  Key<&B::link_seconds>({.name = "link_seconds", .unit = "s"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<SelectionCurve>() {
  using S = SelectionCurve;
  static constexpr auto kKeys = KeyTable<S>(
      Key<&S::density>({.name = "density"}),
      Key<&S::seconds>({.name = "seconds", .unit = "s", .meaning = "by elements and shape"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<DecodeTimes>() {
  using D = DecodeTimes;
  static constexpr auto kKeys =
      KeyTable<D>(Key<&D::per_call>({.name = "per_call", .unit = "s"}),
                  Key<&D::per_call_and_rank>({.name = "per_call_and_rank", .unit = "s"}),
                  Key<&D::per_element>({.name = "per_element", .unit = "s"}),
                  Key<&D::per_element_and_rank>({.name = "per_element_and_rank", .unit = "s"}),
                  Key<&D::per_entry>({.name = "per_entry", .unit = "s"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Profile>() {
  using P = Profile;
  // A key that a profile may lack.
  constexpr auto part = [](const char* name, const char* meaning) {
    return KeyInfo{.name = name, .unit = "s", .meaning = meaning, .optional = true};
  };
  static constexpr auto kKeys = KeyTable<P>(
      Key<&P::backward>(part("backward", "a step without communication")),
      Key<&P::pack>(part("pack", "packing into a flat gradient, by elements")),
      Key<&P::scale>(part("scale", "averaging, by elements")),
      Key<&P::clear>(part("clear", "clearing in decompression, by elements")),
      Key<&P::seconds_per_entry>(part("seconds_per_entry", "decompression, a received entry")),
      Key<&P::seconds_per_reduced_element>(
          part("seconds_per_reduced_element", "reduction, an element added on the way")),
      Key<&P::collective_work>(part("collective_work", "an element, by kind of operation")),
      Key<&P::host_work>(part("host_work", "the same on a card's host")),
      Key<&P::selection_coding>(part("selection_coding", "filters and fits, an element")),
      Key<&P::dispatch_seconds>(part("dispatch_seconds", "time of asking for an operation")),
      Key<&P::exchange_dispatch_seconds>(
          part("exchange_dispatch_seconds", "time of asking for an exchange")),
      Key<&P::selection>(part("selection", "selection, by sparsifier and density")),
      Key<&P::host_selection>(part("host_selection", "selection by a thread of the host")),
      Key<&P::side_lane>(part("side_lane", "lane of selections that run beside backward")),
      Key<&P::encode>(part("encode", "encoding, by quantizer and elements")),
      Key<&P::decode>(part("decode", "decoding, by coder")),
      Key<&P::link>(part("link", "link between neighbours of a ring of all ranks")),
      Key<&P::node_link>(part("node_link", "link in rings of the ranks of a node")),
      Key<&P::native_all_reduce>(part("native_all_reduce", "all-reduce of the backend, by bytes")),
      Key<&P::links>(part("links", "declared, by class")),
      Key<&P::all_reduce>(part("all_reduce", "declared, by bytes")),
      Key<&P::buffers>(part("buffers", "declared: broadcast of buffers before forward")),
      Key<&P::all_gather>(part("all_gather", "declared: algorithm of the all-gather")),
      Key<&P::side_slowdown>(part("side_slowdown", "slowdown of selections beside backward")),
      Key<&P::compute_slowdown>(
          part("compute_slowdown", "slowdown of computation beside exchanges")),
      Key<&P::overlap>(part("overlap", "overlap of exchanges with computation")),
      Key<&P::payload_overlap>(part("payload_overlap", "overlap of exchanges with payloads")),
      Key<&P::fused_overlap>(
          part("fused_overlap", "overlap of payloads selected from several tensors")),
      Key<&P::entry_bytes>(
          part("entry_bytes", "bytes of an element with its index, as it travels")),
      Key<&P::host>(part("host", "declared: in line with the network, or in parallel")),
      Key<&P::selections>(
          part("selections", "declared: within hooks of backward, or in parallel to it")),
      Key<&P::staging>(
          part("staging", "declared: base of exchange_seconds_per_element for payloads")),
      Key<&P::host_growth>(part("host_growth", "growth of the host's share with ranks, a power")),
      Key<&P::host_growth_from>(
          part("host_growth_from", "number of ranks for which the host's share is stated")),
      Key<&P::exchange_host_seconds>(part("exchange_host_seconds", "host's time of an exchange")),
      Key<&P::exchange_host_seconds_per_rank>(
          part("exchange_host_seconds_per_rank", "host's time of an exchange for each rank")),
      Key<&P::exchange_seconds_per_element>(part(
          "exchange_seconds_per_element", "host's time of an element, in line with the network")),
      Key<&P::sum_host_seconds_per_entry>(
          part("sum_host_seconds_per_entry", "host's time of an entry that it sums")),
      Key<&P::relative_errors>(part("relative_errors", "standard errors, by JSON pointer")),
      Key<&P::seconds>(part("seconds", "time that measuring took")));
  return kKeys;
}

template <>
RecordKeys KeysOf<FingerprintValue::Slowest>() {
  using S = FingerprintValue::Slowest;
  static constexpr auto kKeys =
      KeyTable<S>(Key<&S::value>({.name = "value", .meaning = "value of the slowest rank or pair"}),
                  Key<&S::ranks>({.name = "ranks", .meaning = "the slowest rank or pair"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<FingerprintValue>() {
  using V = FingerprintValue;
  static constexpr auto kKeys = KeyTable<V>(
      Key<&V::value>({.name = "value", .meaning = "mean over ranks or pairs of medians"}),
      Key<&V::low>({.name = "low", .meaning = "the low end of the 95 % interval"}),
      Key<&V::high>({.name = "high", .meaning = "the high end of the 95 % interval"}),
      Key<&V::n>({.name = "n", .meaning = "repetitions"}), Key<&V::unit>({.name = "unit"}),
      Key<&V::worst>({.name = "worst", .meaning = "the slowest of several", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Fingerprint>() {
  using F = Fingerprint;
  static constexpr auto kKeys = KeyTable<F>(
      Key<&F::ranks>({.name = "ranks"}), Key<&F::ranks_per_node>({.name = "ranks_per_node"}),
      Key<&F::threads>({.name = "threads", .meaning = "threads of a rank"}),
      Key<&F::device>({.name = "device"}), Key<&F::transport>({.name = "transport"}),
      Key<&F::link>({.name = "link", .meaning = "null: the machine's own"}),
      Key<&F::all_reduce>({.name = "all_reduce", .meaning = "a collective", .optional = true}),
      Key<&F::all_gather>({.name = "all_gather", .meaning = "a collective", .optional = true}),
      Key<&F::quantities>({.name = "quantities", .meaning = "measured quantities, by their names"}),
      Key<&F::id>({.name = "id",
                   .meaning = "the name of its file in results/fingerprints",
                   .leaves = Leaves::kPlace,
                   .optional = true}),
      Key<&F::taken_utc>({.name = "taken_utc", .meaning = "when", .optional = true}),
      Key<&F::changed>({.name = "changed",
                        .meaning = "differences after the run, in sentences",
                        .leaves = Leaves::kWords,
                        .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<DescribedInput>() {
  using I = DescribedInput;
  static constexpr auto kKeys =
      KeyTable<I>(Key<&I::name>({.name = "name"}), Key<&I::value>({.name = "value"}),
                  Key<&I::low>({.name = "low"}), Key<&I::high>({.name = "high"}),
                  Key<&I::kind>({.name = "kind"}), Key<&I::source>({.name = "source"}),
                  Key<&I::group>({.name = "group"}), Key<&I::factor>({.name = "factor"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<CalibratedStep>() {
  using S = CalibratedStep;
  static constexpr auto kKeys =
      KeyTable<S>(Key<&S::paper>({.name = "paper"}), Key<&S::artifact>({.name = "artifact"}),
                  Key<&S::method>({.name = "method"}), Key<&S::workload>({.name = "workload"}),
                  Key<&S::workers>({.name = "workers"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<UsedCard>() {
  using C = UsedCard;
  static constexpr auto kKeys =
      KeyTable<C>(Key<&C::name>({.name = "name"}), Key<&C::kind>({.name = "kind"}),
                  Key<&C::hardware>({.name = "hardware"}), Key<&C::used>({.name = "used"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<ProfileOutcome>() {
  using O = ProfileOutcome;
  static constexpr auto kKeys = KeyTable<O>(
      Key<&O::config>({.name = "config", .meaning = "how it was measured"}),
      Key<&O::profile>({.name = "profile", .meaning = "the numbers that the model computes with"}),
      Key<&O::fingerprint>({.name = "fingerprint", .optional = true}),
      Key<&O::kind>({.name = "kind", .meaning = "origin of its numbers", .optional = true}),
      Key<&O::declared>({.name = "declared", .optional = true}),
      Key<&O::calibration>({.name = "calibration", .optional = true}),
      Key<&O::inputs>({.name = "inputs", .optional = true}),
      Key<&O::card>({.name = "card", .optional = true}),
      Key<&O::status>({.name = "status", .optional = true}),
      Key<&O::sampling>({.name = "sampling", .leaves = Leaves::kWords, .optional = true}),
      Key<&O::started_utc>({.name = "started_utc", .optional = true}),
      Key<&O::n>({.name = "n", .meaning = "steps or rounds", .optional = true}),
      Key<&O::seconds>({.name = "seconds", .unit = "s", .optional = true}),
      Key<&O::machine>({.name = "machine", .optional = true}),
      Key<&O::system>({.name = "system", .optional = true}),
      Key<&O::software>({.name = "software", .optional = true}));
  return kKeys;
}

json ToJson(const Profile& profile) { return WriteRecord(profile); }

Fingerprint FingerprintOf(const json& stored, std::string_view whole) {
  return RecordOf<Fingerprint>(stored, whole);
}
json ToJson(const Fingerprint& fingerprint) { return WriteRecord(fingerprint); }

ProfileOutcome ProfileOutcomeOf(const json& stored, std::string_view whole) {
  if (!stored.is_object()) KeyPlace(whole).Expected(stored, "an object");
  json own = json::object(), beside = json::object();
  for (const auto& [key, value] : stored.items()) {
    const bool known = std::ranges::any_of(KeysOf<ProfileOutcome>(),
                                           [&](const KeyInfo& each) { return key == each.name; });
    (known ? own : beside)[key] = value;
  }
  auto outcome = RecordOf<ProfileOutcome>(own, whole);
  outcome.beside = std::move(beside);
  return outcome;
}

json ToJson(const ProfileOutcome& outcome) {
  json made = outcome.beside;
  made.update(WriteRecord(outcome));
  return made;
}

json ToJson(const ProfileOutcomes& outcomes) {
  json list = json::array();
  for (const ProfileOutcome& outcome : outcomes) list.push_back(ToJson(outcome));
  return list;
}

}  // namespace sparfuse::harness
