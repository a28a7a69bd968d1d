#include "tests/harness/json_schema.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace brrr::testing {
namespace {

using Json = JsonSchemas::Json;

bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  throw std::invalid_argument("unknown type " + type);
}

std::set<std::string> keys_of(const Json& schema, const char* member) {
  std::set<std::string> keys;
  if (!schema.contains(member)) return keys;
  for (const auto& each : schema.at(member).items()) keys.insert(each.key());
  return keys;
}

std::string shown(const Json& value) { return value.dump().substr(0, 80); }

}  // namespace

JsonSchemas::JsonSchemas(const std::string& folder) {
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    if (each.path().extension() != ".json") continue;
    std::ifstream file(each.path());
    files_[each.path().filename()] = Json::parse(file);
  }
}

std::optional<std::string> JsonSchemas::violation(const Json& document,
                                                  const std::string& file) const {
  const auto found = files_.find(file);
  if (found == files_.end()) throw std::invalid_argument("no schema " + file);
  Place at{document, ""};
  return check(at, found->second, file);
}

auto JsonSchemas::check(Place& at, const Json& schema, const std::string& file) const -> Problem {
  for (const auto& [keyword, unused] : schema.items()) {
    if (keyword == "unevaluatedProperties") continue;
    if (const Problem problem = check_keyword(at, keyword, schema, file)) return problem;
  }
  if (!schema.contains("unevaluatedProperties")) return std::nullopt;
  return check_others(at, schema.at("unevaluatedProperties"), at.evaluated, file);
}

auto JsonSchemas::check_keyword(Place& at, const std::string& keyword, const Json& schema,
                                const std::string& file) const -> Problem {
  const Json& rule = schema.at(keyword);
  const auto unless = [&](bool valid) {
    if (valid) return Problem();
    return Problem(at.path + ": expected " + keyword + " " + rule.dump() + ", got " +
                   shown(at.value));
  };
  if (keyword == "$schema" || keyword == "$defs") return std::nullopt;
  if (keyword == "$ref") return check_reference(at, rule, file);
  if (keyword == "const") return unless(at.value == rule);
  if (keyword == "enum") return unless(std::ranges::find(rule, at.value) != rule.end());
  if (keyword == "type") {
    const Json types = rule.is_array() ? rule : Json::array({rule});
    return unless(std::ranges::any_of(types, [&](const Json& t) { return has_type(at.value, t); }));
  }
  if (keyword == "allOf") {
    for (const Json& each : rule) {
      if (const Problem problem = check(at, each, file)) return problem;
    }
    return std::nullopt;
  }
  if (keyword == "oneOf") return check_one_of(at, rule, file);
  if (keyword == "items") return check_items(at, rule, file);
  if (keyword == "properties") return check_properties(at, rule, file);
  if (keyword == "additionalProperties")
    return check_others(at, rule, keys_of(schema, "properties"), file);
  if (keyword == "required") {
    for (const std::string name : rule) {
      if (at.value.is_object() && !at.value.contains(name))
        return at.path + ": expected a member " + name + ", got none";
    }
    return std::nullopt;
  }
  throw std::invalid_argument("unknown keyword " + keyword + " in " + file);
}

auto JsonSchemas::check_reference(Place& at, const std::string& target,
                                  const std::string& file) const -> Problem {
  const std::size_t hash = target.find('#');
  const std::string named = target.substr(0, hash);
  const std::string& other = named.empty() ? file : named;
  return check(at, files_.at(other).at(Json::json_pointer(target.substr(hash + 1))), other);
}

auto JsonSchemas::check_properties(Place& at, const Json& properties, const std::string& file) const
    -> Problem {
  if (!at.value.is_object()) return std::nullopt;
  for (const auto& [name, schema] : properties.items()) {
    if (!at.value.contains(name)) continue;
    at.evaluated.insert(name);
    Place inner{at.value.at(name), at.path + "/" + name};
    if (const Problem problem = check(inner, schema, file)) return problem;
  }
  return std::nullopt;
}

// Members that are not named; `allowed` is false or the schema of each.
auto JsonSchemas::check_others(Place& at, const Json& allowed, const std::set<std::string>& named,
                               const std::string& file) const -> Problem {
  if (!at.value.is_object()) return std::nullopt;
  for (const auto& [name, value] : at.value.items()) {
    if (named.count(name)) continue;
    if (allowed == Json(false)) return at.path + ": the schema has no member " + name;
    at.evaluated.insert(name);
    Place inner{value, at.path + "/" + name};
    if (const Problem problem = check(inner, allowed, file)) return problem;
  }
  return std::nullopt;
}

auto JsonSchemas::check_items(Place& at, const Json& items, const std::string& file) const
    -> Problem {
  if (!at.value.is_array()) return std::nullopt;
  for (std::size_t i = 0; i < at.value.size(); ++i) {
    Place inner{at.value[i], at.path + "/" + std::to_string(i)};
    if (const Problem problem = check(inner, items, file)) return problem;
  }
  return std::nullopt;
}

auto JsonSchemas::check_one_of(Place& at, const Json& choices, const std::string& file) const
    -> Problem {
  std::string problems;
  int valid = 0;
  for (const Json& choice : choices) {
    Place tried = {at.value, at.path};
    if (const Problem problem = check(tried, choice, file)) {
      problems += "; " + *problem;
      continue;
    }
    at.evaluated.insert(tried.evaluated.begin(), tried.evaluated.end());
    ++valid;
  }
  if (valid == 1) return std::nullopt;
  return at.path + ": expected one of " + std::to_string(choices.size()) + " schemas, got " +
         std::to_string(valid) + problems;
}

}  // namespace brrr::testing
