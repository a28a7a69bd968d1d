// graph/min_cut against enumeration of all cuts, against flows along shortest paths, and
// against Boost.Graph.
#include "brrr/graph/min_cut.h"

#include <chrono>
#include <cmath>
#include <optional>

#if __has_include(<boost/graph/push_relabel_max_flow.hpp>)
#define BRRR_TESTS_HAVE_BOOST_GRAPH 1
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>
#endif

#include "tests/harness/catch.h"
#include "tests/harness/samples.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::test;
using graph::MinCut;

namespace {

struct Edge {
  int from, to;
  std::int64_t capacity;
};
struct Network {
  int vertices;  // the source is 0, the sink the last one
  std::vector<Edge> edges;
};

Network random_network(Random& random, int most_vertices) {
  Network network{2 + static_cast<int>(random.below(most_vertices - 1)), {}};
  const auto vertex = [&] { return static_cast<int>(random.below(network.vertices)); };
  const std::int64_t edges = random.below(4 * network.vertices + 1);
  for (std::int64_t i = 0; i < edges; ++i) {
    const std::int64_t capacity = random.below(6) == 0 ? MinCut::kUnbounded : random.below(20);
    network.edges.push_back({vertex(), vertex(), capacity});
  }
  return network;
}

// The capacity of the cut with these vertices on the source's side; none: it is unbounded.
template <class IsOnSourceSide>
std::optional<std::int64_t> capacity_of(const Network& network, IsOnSourceSide is_on_source_side) {
  std::int64_t sum = 0;
  for (const Edge& edge : network.edges) {
    if (!is_on_source_side(edge.from) || is_on_source_side(edge.to)) continue;
    if (edge.capacity == MinCut::kUnbounded) return std::nullopt;
    sum += edge.capacity;
  }
  return sum;
}

std::optional<std::int64_t> least_by_enumeration(const Network& network) {
  std::optional<std::int64_t> least;
  const int inner = network.vertices - 2;
  for (unsigned set = 0; set < 1u << inner; ++set) {
    const auto cut =
        capacity_of(network, [&](int v) { return v == 0 || (v <= inner && (set >> (v - 1) & 1)); });
    if (cut && (!least || *cut < *least)) least = cut;
  }
  return least;
}

// The maximum flow along shortest paths, over a matrix of capacities; none: it is unbounded.
std::optional<std::int64_t> greatest_flow(const Network& network) {
  constexpr std::int64_t kMuch = 1'000'000'000;
  const auto n = static_cast<std::size_t>(network.vertices);
  std::vector<std::vector<std::int64_t>> residual(n, std::vector<std::int64_t>(n));
  for (const Edge& edge : network.edges) {
    residual[static_cast<std::size_t>(edge.from)][static_cast<std::size_t>(edge.to)] +=
        edge.capacity == MinCut::kUnbounded ? kMuch : edge.capacity;
  }
  std::int64_t flow = 0;
  while (flow < kMuch) {
    std::vector<std::size_t> before(n, n), queue = {0};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (std::size_t to = 1; to < n; ++to) {
        if (residual[queue[i]][to] == 0 || before[to] < n) continue;
        before[to] = queue[i];
        queue.push_back(to);
      }
    }
    if (before[n - 1] == n) return flow;
    std::int64_t most = kMuch;
    for (std::size_t v = n - 1; v > 0; v = before[v]) most = std::min(most, residual[before[v]][v]);
    for (std::size_t v = n - 1; v > 0; v = before[v]) {
      residual[before[v]][v] -= most;
      residual[v][before[v]] += most;
    }
    flow += most;
  }
  return std::nullopt;
}

// "" if MinCut finds `expected`, and a cut of that capacity.
std::string problem_of(const Network& network, std::optional<std::int64_t> expected) {
  MinCut cut(network.vertices);
  for (const Edge& edge : network.edges) cut.add_edge(edge.from, edge.to, edge.capacity);
  const std::optional<std::int64_t> got = cut.run(0, network.vertices - 1);
  if (got != expected) return "another capacity";
  if (!got) return "";
  if (!cut.is_on_source_side(0) || cut.is_on_source_side(network.vertices - 1)) return "no cut";
  const auto of_cut = capacity_of(network, [&](int v) { return cut.is_on_source_side(v); });
  return of_cut == expected ? "" : "a cut of another capacity";
}

}  // namespace

TEST_CASE("a minimum cut is that of enumeration", "[min-cut]") {
  int unbounded = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    const Network network = random_network(random, 9);
    const std::optional<std::int64_t> expected = least_by_enumeration(network);
    unbounded += !expected;
    INFO("seed " << seed);
    REQUIRE(problem_of(network, expected) == "");
  }
  CHECK(unbounded > 100);
  CHECK(unbounded < 2000);
}

TEST_CASE("a minimum cut has the capacity of the greatest flow", "[min-cut]") {
  for (std::uint64_t seed = 1; seed <= 10'000; ++seed) {
    Random random(seed);
    const Network network = random_network(random, 30);
    INFO("seed " << seed);
    REQUIRE(problem_of(network, greatest_flow(network)) == "");
  }
}

#ifdef BRRR_TESTS_HAVE_BOOST_GRAPH
namespace {

// The maximum flow by Boost's push-relabel algorithm; none: it is unbounded.
std::optional<std::int64_t> flow_by_boost(const Network& network) {
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
  using Edges = boost::property<
      boost::edge_capacity_t, std::int64_t,
      boost::property<boost::edge_residual_capacity_t, std::int64_t,
                      boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>;
  using Graph =
      boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Edges>;
  constexpr std::int64_t kMuch = 1'000'000'000;
  Graph graph(static_cast<std::size_t>(network.vertices));
  const auto capacity = get(boost::edge_capacity, graph);
  const auto reverse = get(boost::edge_reverse, graph);
  for (const Edge& edge : network.edges) {
    const auto there = add_edge(edge.from, edge.to, graph).first;
    const auto back = add_edge(edge.to, edge.from, graph).first;
    capacity[there] = edge.capacity == MinCut::kUnbounded ? kMuch : edge.capacity;
    capacity[back] = 0;
    reverse[there] = back;
    reverse[back] = there;
  }
  const std::int64_t flow = boost::push_relabel_max_flow(
      graph, vertex(0, graph), vertex(static_cast<std::size_t>(network.vertices) - 1, graph));
  return flow < kMuch ? std::optional(flow) : std::nullopt;
}

}  // namespace

TEST_CASE("a minimum cut is that of Boost.Graph", "[min-cut]") {
  for (std::uint64_t seed = 1; seed <= 10'000; ++seed) {
    Random random(seed);
    const Network network = random_network(random, seed % 100 == 0 ? 300 : 40);
    INFO("seed " << seed);
    REQUIRE(problem_of(network, flow_by_boost(network)) == "");
  }
}
#else
TEST_CASE("a minimum cut is that of Boost.Graph", "[min-cut]") {
  skip("Boost.Graph's headers are not installed (libboost-dev)");
}
#endif

TEST_CASE("of equal cuts the one nearest to the source is taken", "[min-cut]") {
  MinCut cut(4);
  for (int v = 0; v < 3; ++v) cut.add_edge(v, v + 1, 5);
  CHECK(cut.run(0, 3) == 5);
  CHECK(cut.is_on_source_side(0));
  CHECK(!cut.is_on_source_side(1));
}

TEST_CASE("the cut of a joint graph of 20,000 nodes takes milliseconds", "[min-cut][timing]") {
  // Each call is two vertices; a third of the calls is read by the backward, where chains end.
  constexpr int kCalls = 20'000, kRuns = 5;
  double least = INFINITY;  // of several runs: tests run side by side
  for (int run = 0; run < kRuns; ++run) {
    Random random(7);
    MinCut cut(2 * kCalls + 2);
    const int source = 2 * kCalls, sink = source + 1;
    for (int call = 0; call < kCalls; ++call) {
      cut.add_edge(2 * call, 2 * call + 1, 1 + random.below(1'000'000));
      cut.add_edge(source, 2 * call, 1 + random.below(500'000));
      for (int k = 0; k < 2 && call > 0; ++k) {
        const int before = call - 1 - static_cast<int>(random.below(std::min(call, 30)));
        cut.add_edge(2 * before + 1, 2 * call, MinCut::kUnbounded);
      }
      if (random.below(3) == 0) cut.add_edge(2 * call + 1, sink, MinCut::kUnbounded);
    }
    const auto start = std::chrono::steady_clock::now();
    CHECK(cut.run(source, sink));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
  }
  INFO(least << " ms");
  CHECK(least < 50);
}
