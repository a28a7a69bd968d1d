// Validates JSON documents by the schemas of docs/schemas: the keywords that these use, with the
// meaning of draft 2020-12. Any other keyword is an error of the schema.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace brrr::testing {

class JsonSchemas {
 public:
  using Json = nlohmann::json;

  // Reads each file of the folder whose name ends in .json.
  explicit JsonSchemas(const std::string& folder);
  explicit JsonSchemas(std::map<std::string, Json> files) : files_(std::move(files)) {}

  // The first violation, with the place in the document: "/rows/0/mode: ..."; none: it is valid.
  // `file`: "train.json". Throws std::invalid_argument if the schema itself is wrong.
  std::optional<std::string> violation(const Json& document, const std::string& file) const;

  const std::map<std::string, Json>& files() const { return files_; }

 private:
  // What a schema is applied to, and the members of it that were named by a schema.
  struct Place {
    const Json& value;
    std::string path;
    std::set<std::string> evaluated = {};
  };
  using Problem = std::optional<std::string>;

  Problem check(Place& at, const Json& schema, const std::string& file) const;
  Problem check_keyword(Place& at, const std::string& keyword, const Json& schema,
                        const std::string& file) const;
  Problem check_reference(Place& at, const std::string& target, const std::string& file) const;
  Problem check_properties(Place& at, const Json& properties, const std::string& file) const;
  Problem check_others(Place& at, const Json& allowed, const std::set<std::string>& named,
                       const std::string& file) const;
  Problem check_items(Place& at, const Json& items, const std::string& file) const;
  Problem check_one_of(Place& at, const Json& choices, const std::string& file) const;

  std::map<std::string, Json> files_;
};

}  // namespace brrr::testing
