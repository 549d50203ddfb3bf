// Optimizers with a state that the engine sees, and windows of local steps that keep, reset or
// average it.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/methods/windows.hpp"

namespace sparfuse::testing {

inline InnerWithState MomentumInside() {
  return [](Floats& w, std::vector<Floats>& state, const Floats& g, int, const std::vector<int>&) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      state[0][i] = .75f * state[0][i] + g[i];
      w[i] -= .125f * state[0][i];
    }
  };
}

// Adam, whose corrections count updates since the state was zero.
inline InnerWithState AdamInside() {
  return [](Floats& w, std::vector<Floats>& state, const Floats& g, int t,
            const std::vector<int>& since) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const int updates = t - since[i];
      state[0][i] = .9f * state[0][i] + .1f * g[i];
      state[1][i] = .99f * state[1][i] + .01f * (g[i] * g[i]);
      const double m = state[0][i] / (1 - std::pow(.9, updates));
      const double v = state[1][i] / (1 - std::pow(.99, updates));
      w[i] -= static_cast<float>(.01 * m / (std::sqrt(v) + 1e-8));
    }
  };
}

struct InnerCase {
  const char* name;
  const char* inner_state;
  std::size_t arrays;
  int every, fragments, delay;
  double mix = 0;
};

inline const std::vector<InnerCase>& InnerCases() {
  static const std::vector<InnerCase> kCases = {{"kept", "keep", 1, 3, 1, 0},
                                                {"reset", "reset", 2, 3, 1, 0},
                                                {"reset_of_fragments", "reset", 2, 4, 2, 1, .5},
                                                {"reset_that_lags", "reset", 1, 2, 1, 2},
                                                {"average", "average", 1, 3, 1, 0},
                                                {"average_of_both_moments", "average", 2, 3, 1, 0},
                                                {"average_of_fragments", "average", 2, 4, 2, 1, .5},
                                                {"average_in_a_step", "average", 1, 1, 1, 0},
                                                {"average_that_lags", "average", 2, 2, 1, 2}};
  return kCases;
}

inline Windows InnerWindows(const InnerCase& which, int workers, Device device = {}) {
  Windows windows;
  windows.workers = workers;
  windows.tensors = {5, 1, 640, 3, 2001, 8, 1, 130};
  windows.strategy = {{"every", Whole(which.every)},
                      {"delay", Whole(which.delay)},
                      {"mix", which.mix},
                      {"inner_state", std::string(which.inner_state)}};
  windows.planner = {{"fragments", Whole(which.fragments)}};
  windows.arrays = which.arrays;
  windows.with_state = which.arrays == 1 ? MomentumInside() : AdamInside();
  windows.gradient = NoisyGradient;
  windows.start = [](int) {
    Floats w(2789);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 37) / 19 - 1;
    return w;
  };
  windows.steps = 13;
  windows.device = device;
  return windows;
}

}  // namespace sparfuse::testing
