// Device records by CUPTI's activity API.
#pragma once

#include <memory>
#include <string>

#include <brrr/measure/device_recorder.h>

namespace brrr::measure {

// A recorder that uses CUPTI; null with the reason in `why` if CUPTI cannot be used. At most one
// may exist at a time.
std::unique_ptr<DeviceRecorder> record_by_cupti(std::string& why);

// "13.0"; empty: CUPTI cannot be used.
std::string cupti_version();

}  // namespace brrr::measure
