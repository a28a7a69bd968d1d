// brrr_docs_tests: checks of README.md, CONTRIBUTING.md and docs/ against the tree, the program and
// the headers. It links nothing of brrr, so that it is built in seconds.
#define CATCH_CONFIG_RUNNER
#include "tests/harness/catch.h"

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  return failed > 255 ? 255 : failed;
}
