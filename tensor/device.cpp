#include "brrr/tensor/device.h"

#include <fmt/format.h>

#include "brrr/tensor/fail.h"

namespace brrr {

void Device::no_such_index(int index) {
  fail("[device] expected an index from 0 to {}, got {}", kMaxDevices - 1, index);
}

Device Device::parse(const std::string& text) {
  if (text == "cpu") return {};
  if (text == "cuda") return cuda();
  if (text.starts_with("cuda:") && text.size() > 5 && text.size() <= 7 &&
      text.find_first_not_of("0123456789", 5) == std::string::npos) {
    return cuda(std::stoi(text.substr(5)));
  }
  fail("[device] expected \"cpu\", \"cuda\" or \"cuda:N\", got \"{}\"", text);
}

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace brrr
