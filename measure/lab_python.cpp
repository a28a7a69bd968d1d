// The article's figures of Python and of PyTorch, measured where python3 is installed.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>

#include "brrr/measure/lab_experiments.h"

namespace brrr::measure::lab {
namespace {

// Prints additions a second by name. -I: what it imports is installed, and not in this folder.
constexpr const char* kCommand = R"(timeout 60 python3 -I -c '
import timeit
def rate(n, a, b):
    return n / min(timeit.repeat("a + b", globals={{"a": a, "b": b}}, number=n, repeat=7))
print("python", rate(1000000, 1.5, 2.5), flush=True)
import torch
one = torch.ones(1, device="{}")
rate(1000, one, one)
print("torch", rate(20000, one, one))
' 2> /dev/null < /dev/null)";

}  // namespace

PythonAdditions parse_python_additions(const std::string& output) {
  PythonAdditions found;
  std::istringstream lines(output);
  double rate = 0;
  for (std::string name; lines >> name >> rate;) {
    if (rate > 0) (name == "python" ? found.python : found.torch) = rate;
  }
  return found;
}

PythonAdditions python_additions(Device device) {
  std::string output;
  std::FILE* const python =
      ::popen(fmt::format(kCommand, device.is_cpu() ? "cpu" : "cuda").c_str(), "r");
  if (!python) return {};
  std::array<char, 256> text;
  while (std::fgets(text.data(), static_cast<int>(text.size()), python)) output += text.data();
  ::pclose(python);
  return parse_python_additions(output);
}

std::string text_of(const PythonAdditions& found) {
  if (!found.python) return "python3 is not installed here: Python's figures are the article's";
  return found.torch
             ? fmt::format("PyTorch takes {} ns for an addition here, Python {}",
                           number_text(1e9 / *found.torch), number_text(1e9 / *found.python))
             : fmt::format(
                   "Python takes {} ns for an addition here; it has no torch: "
                   "PyTorch's figure is the article's",
                   number_text(1e9 / *found.python));
}

}  // namespace brrr::measure::lab
