// What a trace records besides calls: switches that functions branch on, and numbers that are meant
// to be constants.
#pragma once

#include <memory>

namespace brrr {

struct SettingState;

// A switch of the library that functions branch on, such as a module's training mode. A trace that
// reads it records the value, and the compiled entry is used only while the setting has it.
class Setting {
 public:
  explicit Setting(int value);
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  int value() const;
  void set(int value);

 private:
  friend struct SettingState;
  std::shared_ptr<SettingState> state_;  // outlives the setting where a compiled step reads it
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
