// A strict checker of the pages that reports are: stricter than HTML asks for, so that a mistake in
// a writer is found although a browser would mend it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace brrr::testing {

// What is wrong with a page, a sentence each: tags that do not balance, attributes without quotes
// or twice, bare & < >, ids that are twice or missing, plots without role, title and description,
// coordinates that are no numbers, whatever would be loaded or run from elsewhere, bytes that are
// no text.
std::vector<std::string> problems_of_page(std::string_view html);
// The same of one SVG.
std::vector<std::string> problems_of_svg(std::string_view svg);

}  // namespace brrr::testing
