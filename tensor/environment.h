// Reads settings from environment variables. An invalid value throws an error that states the
// variable, what was expected and the value: an ignored setting would go unnoticed.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace brrr {

// The value; empty: the variable is not set.
std::string setting(const char* name);
// One of the known values, or empty.
std::string setting_of(const char* name, std::initializer_list<std::string_view> known);
// A number above 0, or `standard` where the variable is not set.
double positive_setting(const char* name, double standard);
// An integer of at least 1; values above `most` become `most`.
int count_setting(const char* name, int standard, int most);
// The items of "NAME=NUMBER,...": known names, and integers of at least 1.
std::vector<std::pair<std::string, int>> numbers_setting(
    const char* name, std::initializer_list<std::string_view> known);

// Adds the check of a variable of a higher layer, which throws as the functions above do. For
// initializers of static variables: returns true.
bool add_environment_check(void (*check)());
// Checks all variables, also those that are read before main() or only by some device. Called at
// the first allocation, where an exception reaches the program.
void require_valid_environment();

}  // namespace brrr
