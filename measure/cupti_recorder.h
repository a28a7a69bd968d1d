// Device records by CUPTI's activity API.
#pragma once

#include <memory>
#include <string>

#include <brrr/measure/device_recorder.h>

namespace brrr::measure {

// Null where CUPTI cannot be used; then `why` says why. One at a time.
std::unique_ptr<DeviceRecorder> record_by_cupti(std::string& why);

// "13.0"; empty: CUPTI cannot be used.
std::string cupti_version();

}  // namespace brrr::measure
