// Devices: the CPU, and CUDA devices by index.
#pragma once

#include <cstdint>
#include <string>

namespace brrr {

enum class DeviceType : std::uint8_t { cpu, cuda };

namespace core {
inline constexpr int kMaxDevices = 16;  // of each type: four bits of a tensor's word
}

struct Device {
  DeviceType type = DeviceType::cpu;
  std::uint8_t index = 0;

  constexpr Device() = default;
  constexpr Device(DeviceType t, int i = 0) : type(t), index(static_cast<std::uint8_t>(i)) {
    if (i < 0 || i >= core::kMaxDevices) no_such_index(i);
  }
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return Device(DeviceType::cuda, index); }
  // "cpu", "cuda" or "cuda:1"; throws on anything else.
  static Device parse(const std::string& text);

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  friend constexpr bool operator==(Device, Device) = default;

 private:
  [[noreturn]] static void no_such_index(int index);
};

constexpr Device cuda(int index = 0) { return Device::cuda(index); }

namespace core {
inline constexpr Device cpu = Device::cpu();
}

std::string to_string(Device device);

int device_count(DeviceType type);
bool cuda_is_available();

}  // namespace brrr
