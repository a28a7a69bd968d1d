// What a trace records besides calls: switches that functions branch on, and numbers that are meant
// to be constants.
#pragma once

#include <memory>

namespace brrr::core {

struct SettingState;

// A switch of the library that functions branch on, such as a module's training mode. A trace that
// reads it records the value, and the compiled entry is used only while the setting has that value.
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

// Scope in which the numbers of this thread's calls are meant to be constants, such as the rate and
// decay that an optimizer was made with. A trace marks these calls, and its linter does not report
// their numbers as frozen by accident.
class IntendedConstants {
 public:
  IntendedConstants();
  ~IntendedConstants();
  IntendedConstants(const IntendedConstants&) = delete;
  IntendedConstants& operator=(const IntendedConstants&) = delete;

 private:
  bool before_;
};

}  // namespace brrr::core
