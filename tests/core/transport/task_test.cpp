// Tests coroutines of communication: order, errors, and the state that they leave when destroyed.
#include "core/transport/task.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace sparfuse {
namespace {

struct Gate {
  bool open = false;
  bool lost = false;
  int alive = 0;  // number of existing requests
};

class GateRequest final : public Request {
 public:
  GateRequest(Gate& gate, std::size_t bytes) : gate_(gate), bytes_(bytes) { ++gate_.alive; }
  ~GateRequest() override { --gate_.alive; }
  bool Test() override {
    if (gate_.lost) throw std::runtime_error("lost");
    return gate_.open;
  }
  std::size_t bytes() const noexcept override { return bytes_; }
  int peer() const noexcept override { return 0; }

 private:
  Gate& gate_;
  std::size_t bytes_;
};

std::unique_ptr<Request> Wait(Gate& gate, std::size_t bytes = 0) {
  return std::make_unique<GateRequest>(gate, bytes);
}

// Counts the objects in coroutine frames.
struct Local {
  explicit Local(int& of) : count(of) { ++count; }
  ~Local() { --count; }
  int& count;
};

Task Leaf(Gate& gate, int& locals, std::string& log, std::string name) {
  const Local local(locals);
  log += name + "(";
  co_await Complete(Wait(gate));
  log += name + ")";
}
Task Middle(Gate& first, Gate& second, int& locals, std::string& log) {
  const Local local(locals);
  co_await Leaf(first, locals, log, "a");
  co_await Leaf(second, locals, log, "b");
}

TEST(Task, IsLazyAndRunsNestedTasksInOrder) {
  Gate first;
  Gate second;
  int locals = 0;
  std::string log;
  PendingRequests pending;
  Task task = Middle(first, second, locals, log);
  EXPECT_EQ(log, "");
  EXPECT_FALSE(task.Resume(pending));
  EXPECT_EQ(log, "a(");
  ASSERT_EQ(pending.requests.size(), 1u);
  first.open = true;
  EXPECT_FALSE(task.Resume(pending));
  EXPECT_EQ(log, "a(a)b(");
  EXPECT_EQ(locals, 2);
  second.open = true;
  EXPECT_TRUE(task.Resume(pending));
  EXPECT_EQ(log, "a(a)b(b)");
  EXPECT_EQ(locals, 0);
  EXPECT_EQ(first.alive + second.alive, 0);
  EXPECT_NO_THROW(task.RethrowIfFailed());
}

TEST(Task, DestroyedUnfinishedReleasesAllFrames) {
  Gate first;
  Gate second;
  int locals = 0;
  std::string log;
  {
    Task task = Middle(first, second, locals, log);
    PendingRequests pending;
    EXPECT_FALSE(task.Resume(pending));
    EXPECT_EQ(locals, 2);
    EXPECT_EQ(first.alive, 1);
  }
  EXPECT_EQ(locals, 0);
  EXPECT_EQ(first.alive, 0);
  { Task never_started = Middle(first, second, locals, log); }
  EXPECT_EQ(locals, 0);
}

Task Fails(Gate& gate, int& locals) {
  const Local local(locals);
  co_await Complete(Wait(gate));
  throw std::runtime_error("inner");
}
Task Passes(Gate& gate, int& locals) {
  const Local local(locals);
  co_await Fails(gate, locals);
}
Task Catches(Gate& gate, int& locals, std::string& caught) {
  const Local local(locals);
  try {
    co_await Passes(gate, locals);
  } catch (const std::runtime_error& error) {
    caught = error.what();
  }
  co_await Complete(Wait(gate));
}

TEST(Task, ErrorsPassThroughNestedTasks) {
  Gate gate;
  int locals = 0;
  PendingRequests pending;
  Task task = Passes(gate, locals);
  EXPECT_FALSE(task.Resume(pending));
  gate.open = true;
  EXPECT_TRUE(task.Resume(pending));
  EXPECT_EQ(locals, 0);
  EXPECT_THROW(task.RethrowIfFailed(), std::runtime_error);
}

TEST(Task, ErrorsCanBeCaughtByTheAwaiter) {
  Gate gate;
  int locals = 0;
  std::string caught;
  PendingRequests pending;
  Task task = Catches(gate, locals, caught);
  EXPECT_FALSE(task.Resume(pending));
  gate.open = true;
  EXPECT_TRUE(task.Resume(pending));
  EXPECT_EQ(caught, "inner");
  EXPECT_NO_THROW(task.RethrowIfFailed());
}

TEST(Task, ErrorOfARequestReachesTheCoroutine) {
  Gate gate;
  gate.lost = true;
  int locals = 0;
  std::string caught;
  PendingRequests pending;
  Task task = Catches(gate, locals, caught);
  EXPECT_TRUE(task.Resume(pending));
  EXPECT_THROW(task.RethrowIfFailed(), std::runtime_error);
  EXPECT_EQ(caught, "lost");
  EXPECT_EQ(gate.alive, 0);
}

Task Receives(Gate& gate, std::size_t& sum) {
  const auto few = co_await Complete(Wait(gate, 1), Wait(gate, 20));
  std::vector<std::unique_ptr<Request>> many;
  for (std::size_t i = 0; i < 3; ++i) many.push_back(Wait(gate, 100));
  many = co_await Complete(std::move(many));
  sum = few[0]->bytes() + 2 * few[1]->bytes();
  for (const auto& request : many) sum += request->bytes();
}

TEST(Task, CompleteReturnsRequestsInOrder) {
  for (const bool open_from_the_start : {false, true}) {
    Gate gate;
    gate.open = open_from_the_start;
    std::size_t sum = 0;
    PendingRequests pending;
    Task task = Receives(gate, sum);
    EXPECT_EQ(task.Resume(pending), open_from_the_start);
    gate.open = true;
    task.Resume(pending);
    EXPECT_EQ(sum, 341u);
  }
}

Task Nothing() { co_return; }
Task ManyNothings(int count) {
  for (int i = 0; i < count; ++i) co_await Nothing();
  co_await Complete(std::vector<std::unique_ptr<Request>>{});
  co_await Task();
}
Task Deep(int depth) {
  if (depth > 0) co_await Deep(depth - 1);
}

TEST(Task, ChainsThatNeverWaitDoNotGrowTheStack) {
  PendingRequests pending;
  Task task = ManyNothings(1'000'000);
  EXPECT_TRUE(task.Resume(pending));
  // 10'000 frames live on the heap. Only their destruction would recurse, but they end one by one.
  Task deep = Deep(10'000);
  EXPECT_TRUE(deep.Resume(pending));
  Task empty;
  EXPECT_TRUE(empty.Resume(pending));
}

TEST(Task, MoveAssignmentDropsTheOldFrame) {
  Gate gate;
  int locals = 0;
  std::string log;
  Task task = Leaf(gate, locals, log, "a");
  PendingRequests pending;
  EXPECT_FALSE(task.Resume(pending));
  EXPECT_EQ(locals, 1);
  pending.requests.clear();
  task = Leaf(gate, locals, log, "b");
  EXPECT_EQ(locals, 0);
}

}  // namespace
}  // namespace sparfuse
