// What a trace records besides calls: switches that functions branch on, and numbers that are meant
// to be constants.
#pragma once

#include <atomic>
#include <memory>

namespace brrr {

// A switch of the library that functions branch on, such as a module's training mode. A trace that
// reads it records the value, and the compiled entry is used only while the setting has it.
class Setting {
 public:
  using State = std::shared_ptr<std::atomic<int>>;  // outlives the owner of the setting

  explicit Setting(int value) : state_(std::make_shared<std::atomic<int>>(value)) {}
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  int value() const { return state_->load(std::memory_order_relaxed); }
  void set(int value);
  const State& state() const { return state_; }

 private:
  State state_;
};

// While it lives, the numbers in this thread's calls are constants that the program chose for what
// runs here, such as an optimizer's rate and decay. A trace marks the calls, and its linter reports
// none of their numbers as frozen by accident.
class IntendedConstants {
 public:
  IntendedConstants();
  ~IntendedConstants();
  IntendedConstants(const IntendedConstants&) = delete;
  IntendedConstants& operator=(const IntendedConstants&) = delete;

 private:
  bool before_;
};

}  // namespace brrr
