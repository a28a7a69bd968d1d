// Escapes text for HTML and SVG, so that it cannot end an element or attribute.
#pragma once

#include <string>
#include <string_view>

namespace brrr::measure {

// `&`, `<`, `>` and both quotes as references; control characters and invalid UTF-8 as U+FFFD.
std::string escaped(std::string_view text);

}  // namespace brrr::measure
