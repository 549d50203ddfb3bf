// Times of digits-resnet, one rank and 32 images, median of 50 passes on one core of an AMD EPYC:
// results/profiles/epyc-2core.json, whose seconds these are to the hundredth of a microsecond.
#include "workloads/recorded/recorded_times.hpp"

#include "core/base/error.hpp"

namespace sparfuse::workloads {

const RecordedTimes& TimesOf(const ModelSize& model) {
  static const RecordedTimes digits_resnet{
      .batch = 32,
      .forward_us = 15040.9,
      .backward_us = {295.37, 10.83,   123.04,  2.5,    2914.78, 132.22,  2.66,    2846.24,
                      179.51, 2.49,    2857.72, 133.41, 2.69,    1936.74, 727.7,   175.29,
                      3.21,   2305.17, 183.19,  2.61,   2263.81, 230.34,  2.59,    2292.78,
                      187.96, 3.04,    1886.84, 790.94, 172.34,  2.7,     2519.56, 194.6,
                      2.82,   2521.57, 269.89,  3.1,    2493.54, 194.93,  3.19,    2520.1,
                      267.03, 2.92,    187.25},
      .tail_us = 85.59};
  if (!std::holds_alternative<DigitsResnetSize>(model)) {
    SPARFUSE_THROW(kInternal, "no times are recorded of this model");
  }
  return digits_resnet;
}

}  // namespace sparfuse::workloads
