// The validator of JSON schemas; tests/cli/calls.cmake runs it on what the program prints.
#include <map>
#include <string>

#include "tests/harness/catch.h"
#include "tests/harness/json_schema.h"
#include "tests/harness/source_tree.h"

using brrr::testing::JsonSchemas;
using Json = JsonSchemas::Json;

namespace {

// The first violation of a schema by a document; "": none.
std::string problem(const char* schema, const char* document) {
  const JsonSchemas schemas(std::map<std::string, Json>{{"a.json", Json::parse(schema)}});
  return schemas.violation(Json::parse(document), "a.json").value_or("");
}

}  // namespace

TEST_CASE("a document that breaks a keyword of its schema is refused with the place", "[cli]") {
  CHECK(problem(R"({"type": ["number", "null"]})", "1.5").empty());
  CHECK(problem(R"({"type": ["number", "null"]})", "null").empty());
  CHECK_THAT(problem(R"({"type": "integer"})", "1.5"), Catch::Contains("expected type"));
  CHECK(problem(R"({"enum": ["a", null]})", "null").empty());
  CHECK_THAT(problem(R"({"enum": ["a"]})", "\"b\""), Catch::Contains("expected enum"));
  CHECK_THAT(problem(R"({"const": 1})", "2"), Catch::Contains("expected const"));
  CHECK_THAT(problem(R"({"items": {"type": "string"}})", R"(["a", 1])"), Catch::Contains("/1: "));
  CHECK(problem(R"({"required": ["a"]})", "{}") == ": expected a member a, got none");
  const char* closed =
      R"({"properties": {"a": {"type": "string"}}, "additionalProperties": false})";
  CHECK(problem(closed, R"({"a": "x"})").empty());
  CHECK_THAT(problem(closed, R"({"a": 1})"), Catch::Contains("/a: expected type"));
  CHECK(problem(closed, R"({"b": 1})") == ": the schema has no member b");
  CHECK_THAT(problem(R"({"additionalProperties": {"type": "string"}})", R"({"b": 1})"),
             Catch::Contains("/b: expected type"));
  CHECK_THROWS_WITH(problem(R"({"minimum": 1})", "2"), Catch::Contains("unknown keyword minimum"));
}

TEST_CASE("members that any part of a composed schema names are known to it", "[cli]") {
  const char* composed = R"({
    "$defs": {"base": {"properties": {"a": {"type": "string"}}, "required": ["a"]}},
    "allOf": [{"$ref": "#/$defs/base"}],
    "oneOf": [{"properties": {"kind": {"const": 1}, "b": {}}, "required": ["kind"]},
              {"properties": {"kind": {"const": 2}, "c": {}}, "required": ["kind"]}],
    "unevaluatedProperties": false})";
  CHECK(problem(composed, R"({"a": "x", "kind": 1, "b": 0})").empty());
  CHECK(problem(composed, R"({"a": "x", "kind": 2, "c": 0})").empty());
  CHECK(problem(composed, R"({"a": "x", "kind": 1, "c": 0})") == ": the schema has no member c");
  CHECK_THAT(problem(composed, R"({"a": "x", "kind": 3})"), Catch::Contains("got 0"));
  CHECK_THAT(problem(composed, R"({"kind": 1})"), Catch::Contains("expected a member a"));
  CHECK_THAT(problem(R"({"oneOf": [{}, {}]})", "1"), Catch::Contains("got 2"));
}

TEST_CASE("an empty document is no output", "[cli]") {
  const JsonSchemas schemas(brrr::testing::source_path("docs/schemas"));
  REQUIRE(schemas.files().size() > 10);
  for (const auto& [file, schema] : schemas.files()) {
    INFO(file);
    if (file == "definitions.json") continue;
    CHECK(schemas.violation(Json::object(), file));
    CHECK(schemas.violation(Json::array(), file));
  }
}
