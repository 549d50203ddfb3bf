// The keys of facts as JSON, and the record of an import.
#include "harness/records/record.hpp"
#include "harness/traces/trace_facts.hpp"
#include "harness/traces/trace_model.hpp"

namespace sparfuse::harness {

template <>
RecordKeys KeysOf<Spread>() {
  using S = Spread;
  static constexpr auto kKeys =
      KeyTable<S>(Key<&S::median>({.name = "median"}), Key<&S::low>({.name = "low"}),
                  Key<&S::high>({.name = "high"}), Key<&S::n>({.name = "n"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedHost>() {
  using H = TracedHost;
  static constexpr auto kKeys =
      KeyTable<H>(Key<&H::forward_us>({.name = "forward_us", .unit = "us"}),
                  Key<&H::backward_us>({.name = "backward_us", .unit = "us"}),
                  Key<&H::update_us>({.name = "update_us", .unit = "us"}),
                  Key<&H::hook_us_a_tensor>({.name = "hook_us_a_tensor", .unit = "us"}),
                  Key<&H::exchange_call_us>({.name = "exchange_call_us", .unit = "us"}),
                  Key<&H::copy_back_us_a_tensor>({.name = "copy_back_us_a_tensor", .unit = "us"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedTensor>() {
  using T = TracedTensor;
  static constexpr auto kKeys = KeyTable<T>(
      Key<&T::shape>({.name = "shape"}), Key<&T::ready_us>({.name = "ready_us", .unit = "us"}),
      Key<&T::low>({.name = "low", .unit = "us"}), Key<&T::high>({.name = "high", .unit = "us"}),
      Key<&T::idle_us>({.name = "idle_us", .unit = "us"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedIdle>() {
  using I = TracedIdle;
  static constexpr auto kKeys =
      KeyTable<I>(Key<&I::forward_us>({.name = "forward_us", .unit = "us"}),
                  Key<&I::backward_us>({.name = "backward_us", .unit = "us"}),
                  Key<&I::update_us>({.name = "update_us", .unit = "us"}),
                  Key<&I::period_us>({.name = "period_us", .unit = "us"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedExchange>() {
  using E = TracedExchange;
  static constexpr auto kKeys = KeyTable<E>(
      Key<&E::collective>({.name = "collective"}), Key<&E::elements>({.name = "elements"}),
      Key<&E::dtype>({.name = "dtype", .empty_is_null = true}), Key<&E::ranks>({.name = "ranks"}),
      Key<&E::group>({.name = "group"}), Key<&E::us>({.name = "us", .unit = "us"}),
      Key<&E::us_by_step>({.name = "us_by_step", .unit = "us"}),
      Key<&E::begin_us>({.name = "begin_us", .unit = "us"}),
      Key<&E::end_us>({.name = "end_us", .unit = "us"}), Key<&E::bytes>({.name = "bytes"}),
      Key<&E::bus_gbytes_per_s_at_low>({.name = "bus_gbytes_per_s_at_low", .unit = "GB/s"}),
      Key<&E::kernel>({.name = "kernel", .optional = true}),
      Key<&E::sequence>({.name = "sequence", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedBroadcast>() {
  using B = TracedBroadcast;
  static constexpr auto kKeys =
      KeyTable<B>(Key<&B::collective>({.name = "collective"}), Key<&B::a_step>({.name = "a_step"}),
                  Key<&B::bytes_a_step>({.name = "bytes_a_step"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TracedDevice>() {
  using D = TracedDevice;
  static constexpr auto kKeys = KeyTable<D>(
      Key<&D::kernel_us>({.name = "kernel_us", .unit = "us"}),
      Key<&D::kernel_us_tenth>({.name = "kernel_us_tenth", .unit = "us"}),
      Key<&D::kernel_us_hundredth>({.name = "kernel_us_hundredth", .unit = "us"}),
      Key<&D::memory_gbytes_per_s>({.name = "memory_gbytes_per_s", .unit = "GB/s"}),
      Key<&D::host_link_gbytes_per_s>({.name = "host_link_gbytes_per_s", .unit = "GB/s"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TraceFacts>() {
  using F = TraceFacts;
  static constexpr auto kKeys = KeyTable<F>(
      Key<&F::schema>({.name = "schema"}), Key<&F::file>({.name = "file"}),
      Key<&F::sha256>({.name = "sha256", .leaves = Leaves::kHash}), Key<&F::rank>({.name = "rank"}),
      Key<&F::world>({.name = "world"}), Key<&F::backend>({.name = "backend"}),
      Key<&F::device>({.name = "device"}),
      Key<&F::hardware>({.name = "hardware", .empty_is_null = true}),
      Key<&F::steps_found>({.name = "steps_found"}), Key<&F::steps_used>({.name = "steps_used"}),
      Key<&F::passes_a_step>({.name = "passes_a_step"}),
      Key<&F::period_us>({.name = "period_us", .unit = "us"}),
      Key<&F::forward_us>({.name = "forward_us", .unit = "us"}),
      Key<&F::backward_us>({.name = "backward_us", .unit = "us"}),
      Key<&F::update_us>({.name = "update_us", .unit = "us"}),
      Key<&F::idle_share_of_backward>({.name = "idle_share_of_backward", .optional = true}),
      Key<&F::launch_lag_us>({.name = "launch_lag_us", .unit = "us", .optional = true}),
      Key<&F::bound>({.name = "bound", .optional = true}), Key<&F::host>({.name = "host"}),
      Key<&F::idle>({.name = "idle"}), Key<&F::hooks_us>({.name = "hooks_us", .unit = "us"}),
      Key<&F::exposed_us>({.name = "exposed_us", .unit = "us"}),
      Key<&F::rest_us>({.name = "rest_us", .unit = "us"}),
      Key<&F::tensors_a_step>({.name = "tensors_a_step"}),
      Key<&F::same_order>({.name = "same_order"}), Key<&F::tensors>({.name = "tensors"}),
      Key<&F::exchanges>({.name = "exchanges"}),
      Key<&F::before_backward>({.name = "before_backward"}),
      Key<&F::on_device>({.name = "on_device", .optional = true}),
      Key<&F::exchange_call_tenth_us>({.name = "exchange_call_tenth_us", .optional = true}),
      Key<&F::exchange_call_ninetieth_us>({.name = "exchange_call_ninetieth_us", .optional = true}),
      Key<&F::hook_tenth_us>({.name = "hook_tenth_us", .optional = true}),
      Key<&F::hook_ninetieth_us>({.name = "hook_ninetieth_us", .optional = true}),
      Key<&F::compiled_regions>({.name = "compiled_regions", .optional = true}),
      Key<&F::notes>({.name = "notes", .leaves = Leaves::kWords}));
  return kKeys;
}

nlohmann::json ToJson(const TraceFacts& facts) { return WriteRecord(facts); }

template <>
RecordKeys KeysOf<TracedTransfer>() {
  using T = TracedTransfer;
  static constexpr auto kKeys =
      KeyTable<T>(Key<&T::collective>({.name = "collective"}),
                  Key<&T::elements>({.name = "elements"}), Key<&T::bytes>({.name = "bytes"}),
                  Key<&T::transfer_us>({.name = "transfer_us", .unit = "us"}),
                  Key<&T::group_ranks>({.name = "group_ranks"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<TransferFacts>() {
  using T = TransferFacts;
  static constexpr auto kKeys =
      KeyTable<T>(Key<&T::ranks>({.name = "ranks"}), Key<&T::exchanges>({.name = "exchanges"}));
  return kKeys;
}

nlohmann::json ToJson(const TransferFacts& transfers) { return WriteRecord(transfers); }

nlohmann::ordered_json TraceRecord(const TracedModel& model) {
  nlohmann::ordered_json made;
  made["schema"] = kTraceSchema;
  made["table"] = model.name;
  made["batch"] = model.batch;
  made["corrections"] = model.corrections;
  made["notes"] = model.notes;
  made["ranks"] = nlohmann::ordered_json::array();
  for (const TraceFacts& each : model.ranks)
    made["ranks"].push_back(nlohmann::ordered_json(ToJson(each)));
  made["transfers"] =
      model.transfers ? nlohmann::ordered_json(ToJson(*model.transfers)) : nlohmann::ordered_json();
  return made;
}

}  // namespace sparfuse::harness
