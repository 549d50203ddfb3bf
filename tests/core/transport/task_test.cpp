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

class TaskTest : public ::testing::Test {
 protected:
  Gate gate_, second_;
  int locals_ = 0;
  std::string log_, caught_;
  PendingRequests pending_;
};

TEST_F(TaskTest, IsLazyAndRunsNestedTasksInOrder) {
  Task task = Middle(gate_, second_, locals_, log_);
  EXPECT_EQ(log_, "");
  EXPECT_FALSE(task.Resume(pending_));
  EXPECT_EQ(log_, "a(");
  ASSERT_EQ(pending_.requests.size(), 1u);
  gate_.open = true;
  EXPECT_FALSE(task.Resume(pending_));
  EXPECT_EQ(log_, "a(a)b(");
  EXPECT_EQ(locals_, 2);
  second_.open = true;
  EXPECT_TRUE(task.Resume(pending_));
  EXPECT_EQ(log_, "a(a)b(b)");
  EXPECT_EQ(locals_, 0);
  EXPECT_EQ(gate_.alive + second_.alive, 0);
  EXPECT_NO_THROW(task.RethrowIfFailed());
}

TEST_F(TaskTest, DestroyedUnfinishedReleasesAllFrames) {
  {
    Task task = Middle(gate_, second_, locals_, log_);
    EXPECT_FALSE(task.Resume(pending_));
    EXPECT_EQ(locals_, 2);
    EXPECT_EQ(gate_.alive, 1);
    pending_.requests.clear();
  }
  EXPECT_EQ(locals_, 0);
  EXPECT_EQ(gate_.alive, 0);
  { Task never_started = Middle(gate_, second_, locals_, log_); }
  EXPECT_EQ(locals_, 0);
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

TEST_F(TaskTest, ErrorsPassThroughNestedTasks) {
  Task task = Passes(gate_, locals_);
  EXPECT_FALSE(task.Resume(pending_));
  gate_.open = true;
  EXPECT_TRUE(task.Resume(pending_));
  EXPECT_EQ(locals_, 0);
  EXPECT_THROW(task.RethrowIfFailed(), std::runtime_error);
}

TEST_F(TaskTest, ErrorsCanBeCaughtByTheAwaiter) {
  Task task = Catches(gate_, locals_, caught_);
  EXPECT_FALSE(task.Resume(pending_));
  gate_.open = true;
  EXPECT_TRUE(task.Resume(pending_));
  EXPECT_EQ(caught_, "inner");
  EXPECT_NO_THROW(task.RethrowIfFailed());
}

TEST_F(TaskTest, ErrorOfARequestReachesTheCoroutine) {
  gate_.lost = true;
  Task task = Catches(gate_, locals_, caught_);
  EXPECT_TRUE(task.Resume(pending_));
  EXPECT_THROW(task.RethrowIfFailed(), std::runtime_error);
  EXPECT_EQ(caught_, "lost");
  EXPECT_EQ(gate_.alive, 0);
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

TEST_F(TaskTest, MoveAssignmentDropsTheOldFrame) {
  Task task = Leaf(gate_, locals_, log_, "a");
  EXPECT_FALSE(task.Resume(pending_));
  EXPECT_EQ(locals_, 1);
  pending_.requests.clear();
  task = Leaf(gate_, locals_, log_, "b");
  EXPECT_EQ(locals_, 0);
}

}  // namespace
}  // namespace sparfuse
