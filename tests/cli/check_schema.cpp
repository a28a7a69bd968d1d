// check_schema FOLDER SCHEMA < DOCUMENT: exits with 1 and says why if the document is not valid, or
// if it still is valid with a member that no output has, in any of its objects.
#include <exception>
#include <iostream>
#include <set>
#include <string>

#include "tests/harness/json_schema.h"

namespace {

using Json = nlohmann::json;

// An object of the document at which the schema accepts an unknown member; "": there is none. Of
// objects with the same keys in the same list one is tried.
std::string open_object(const brrr::testing::JsonSchemas& schemas, const std::string& schema,
                        Json& document, Json& at, const std::string& path,
                        std::set<std::string>& tried) {
  std::string keys = path;
  for (const auto& each : at.items()) keys += at.is_object() ? " " + each.key() : "";
  if (at.is_object() && tried.insert(keys).second) {
    at["unknown"] = Json::array();
    const bool open = !schemas.violation(document, schema);
    at.erase("unknown");
    if (open) return path.empty() ? "/" : path;
  }
  for (auto each = at.begin(); each != at.end(); ++each) {
    if (!each->is_structured()) continue;
    const std::string inner = path + "/" + (at.is_object() ? each.key() : "");
    if (auto found = open_object(schemas, schema, document, *each, inner, tried); !found.empty())
      return found;
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("expected FOLDER SCHEMA");
  const brrr::testing::JsonSchemas schemas(argv[1]);
  auto document = Json::parse(std::cin);
  if (const auto problem = schemas.violation(document, argv[2])) {
    std::cerr << argv[2] << ": " << *problem << "\n";
    return 1;
  }
  std::set<std::string> tried;
  const std::string open = open_object(schemas, argv[2], document, document, "", tried);
  if (open.empty()) return 0;
  std::cerr << argv[2] << ": accepts unknown members at " << open << "\n";
  return 1;
} catch (const std::exception& problem) {
  std::cerr << "check_schema: " << problem.what() << "\n";
  return 1;
}
