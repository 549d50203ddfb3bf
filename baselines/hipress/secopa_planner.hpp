// Plans by HiPress' SeCoPa: each tensor by itself, sent whole or compressed, in partitions.
#pragma once

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

extern const PlannerDescriptor kSecopaPlanner;

}  // namespace sparfuse::baselines
