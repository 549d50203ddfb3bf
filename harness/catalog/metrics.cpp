#include "harness/catalog/metrics.hpp"

#include <vector>

namespace sparfuse::harness {

std::span<const Metric> Metrics() {
  static const std::vector<Metric> kMetrics = {
      {"step_seconds", "s", "step time: median over the measured steps of the slowest rank's"},
      {"throughput", "", "samples of all ranks per second of step time, in the workload's unit"},
      {"forward_seconds", "s", "forward pass, median of the slowest rank"},
      {"backward_seconds", "s", "backward pass, median of the slowest rank"},
      {"sparsify_seconds", "s",
       "selection of the elements that are sent, median of the slowest rank"},
      {"exposed_communication_seconds", "s",
       "time during which the rank waits for exchanges, median of the slowest rank"},
      {"decompress_seconds", "s", "adding up received payloads, median of the slowest rank"},
      {"update_seconds", "s", "update of the parameters, median of the slowest rank"},
      {"outer_seconds", "s",
       "with local steps: packing of the parameters that are sent, and the outer rule; mean over a "
       "window's steps, median of the slowest rank"},
      {"other_seconds", "s", "rest of the step, median of the slowest rank"},
      {"align_wait_seconds", "s",
       "waiting for other ranks that the method requires, for example to close a buffer; median of "
       "the slowest rank"},
      {"window_seconds", "s",
       "with local steps: from one window's end to the next, median of the slowest rank; "
       "step_seconds is its part of a step"},
      {"compute_utilisation", "",
       "forward, backward and update over the step time, median of the slowest rank"},
      {"payload_bytes", "B", "bytes that a rank contributes to exchanges, mean per step and rank"},
      {"sent_bytes", "B", "bytes that a rank sends, forwards included, mean per step and rank"},
      {"window_bytes", "B", "with local steps: bytes that a rank sends in a window, mean"},
      {"sent_over_payload", "", "sent_bytes over payload_bytes"},
      {"received_bytes", "B", "bytes that a rank receives, mean per step and rank"},
      {"messages_sent", "messages", "messages that a rank sends, mean per step and rank"},
      {"achieved_density", "", "elements selected over elements of the model"},
      {"densification", "",
       "elements of the sums that exchanges give, over elements that a rank selects: gamma(P)"},
      {"imbalance", "",
       "for collectives that distribute sums among ranks: elements that the busiest rank reads for "
       "its sums, over the average rank's, mean over steps"},
      {"returned", "elements",
       "elements that came back to a rank's residual from exchanges, mean per step and rank"},
      {"residual_norm", "", "Euclidean norm of elements that are not sent yet"},
      {"tensors_missing", "tensors", "tensors without a selected element, mean per step"},
      {"fibres_missing", "",
       "fraction of the fibres along a tensor's second axis that are not zero and have no sent "
       "element, over the steps in which mass is checked"},
      {"exchanges", "exchanges", "exchanges of a step"},
      {"replica_divergence", "",
       "with local steps: root mean square distance of ranks' parameters from their average over "
       "the norm of this average, before the last exchange of the first windows, mean"},
      {"anchor_distance", "", "the same distance from the anchor, over the norm of the anchor"},
      {"method_memory_bytes", "B",
       "with local steps: memory of a rank in addition to the workload's: the anchor, the outer "
       "state and the largest sent fragment"},
      {"unsynchronised_steps", "steps",
       "with local steps: the last steps of the trial, after its last date"},
      {"loader_wait_seconds", "s",
       "time that a step waits for prepared data, mean over steps of the rank that waits longest"},
      {"python_seconds", "s",
       "time in parts of the method that are written in Python, waiting for one another included: "
       "mean per step of rank 0's process; absent if there are none"},
      {"loss", "", "training loss"},
      {"final_metric", "", "convergence: the workload's metric in the last evaluation"},
      {"final_exact_match", "", "convergence: for questions, answers that are right as a whole"},
      {"steps_to_target", "steps", "convergence: steps until the metric reached the target"},
      {"seconds_to_target", "s",
       "convergence: training time until the metric reached the target, without evaluation"},
      {"seconds_to_target_with_evaluation", "s", "convergence: the same with evaluations"},
      {"epochs_to_target", "epochs",
       "convergence: how often the training data was gone through until then"},
      {"samples_to_target", "samples", "convergence: training samples until then, over all ranks"},
      {"sent_bytes_to_target", "B", "convergence: bytes that a rank sent until then, mean"}};
  return kMetrics;
}

std::span<const std::string> MetricNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Metric& metric : Metrics()) names.push_back(metric.name);
    return names;
  }();
  return kNames;
}

bool IsTimed(const std::string& metric) {
  return metric == "throughput" || metric == "compute_utilisation" ||
         metric.find("seconds") != std::string::npos;
}

bool IsToTarget(std::string_view metric) {
  return metric.find("_to_target") != std::string_view::npos;
}

}  // namespace sparfuse::harness
