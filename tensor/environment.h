// Reads the variables of the environment that are settings. A value that is not understood is an
// error with the variable, what it may be and what it is: nobody notices a setting that is ignored.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace brrr {

// The value; empty: the variable is not set.
std::string setting(const char* name);
// One of the known values, or empty.
std::string setting_of(const char* name, std::initializer_list<std::string_view> known);
// A number above 0, or `standard` where the variable is not set.
double positive_setting(const char* name, double standard);
// A whole number from 1 on. Larger ones are `most`.
int count_setting(const char* name, int standard, int most);

// Checks all variables, also those that are read before main() or only by some device. Called at
// the first allocation, where an exception reaches the program.
void require_valid_environment();

}  // namespace brrr
