// Escapes text for HTML and SVG, so that it cannot end an element or attribute; characters of
// UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace brrr::measure {

// `&`, `<`, `>` and both quotes as references; control characters and invalid UTF-8 as U+FFFD.
std::string escaped(std::string_view text);

// Whether a byte of UTF-8 is the first one of a character.
inline bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

}  // namespace brrr::measure
