#include "brrr/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "brrr/io/file_bytes.h"
#include "brrr/io/safetensors_header.h"
#include "brrr/io/strided_bytes.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/thread_context.h"

namespace brrr {
namespace {

using safetensors::Header;
using safetensors::TensorInfo;

// Checks that every entry has as many bytes as its shape needs, and that together they cover the
// data exactly once. Entries are sorted by their begin.
void check_layout(const ByteSource& source, const std::vector<TensorInfo>& entries,
                  std::uint64_t data_bytes, std::uint64_t data_at) {
  std::uint64_t covered = 0;
  for (const TensorInfo& entry : entries) {
    const std::size_t element = size_of(entry.dtype);
    const std::optional<std::int64_t> numel = try_numel(entry.shape, element);
    const std::string name = in_quotes(entry.name);
    if (!numel) {
      source.refuse(
          entry.shape_at,
          fmt::format("expected a shape whose bytes fit into 63 bits, got {} for tensor {}",
                      to_string(entry.shape), name));
    }
    if (entry.end < entry.begin) {
      source.refuse(entry.offsets_at,
                    fmt::format("expected offsets in order, got [{}, {}] for tensor {}",
                                entry.begin, entry.end, name));
    }
    const std::uint64_t bytes = static_cast<std::uint64_t>(*numel) * element;
    if (entry.end - entry.begin != bytes) {
      source.refuse(
          entry.offsets_at,
          fmt::format("expected {} bytes for {}{}, got {} for tensor {}", bytes,
                      name_of(entry.dtype), to_string(entry.shape), entry.end - entry.begin, name));
    }
    if (entry.begin != covered) {
      source.refuse(
          entry.offsets_at,
          fmt::format("expected tensor {} to begin at offset {}, where the one before ends, got {}",
                      name, covered, entry.begin));
    }
    if (entry.end > data_bytes) {
      source.refuse(entry.offsets_at,
                    fmt::format("tensor {} ends at offset {}, but the file holds {} bytes of data",
                                name, entry.end, data_bytes));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    source.refuse(data_at + covered,
                  fmt::format("expected the end of the file, got {} bytes that belong to no tensor",
                              data_bytes - covered));
  }
}

SafeTensors read_safetensors(const ByteSource& source) {
  std::uint64_t length = 0;
  source.read(&length, 0, safetensors::kLengthBytes);
  if (length > safetensors::kMostHeader) {
    source.refuse(0, fmt::format("expected a header of at most {} bytes, got {}",
                                 safetensors::kMostHeader, length));
  }
  if (length > source.size() - safetensors::kLengthBytes) {
    source.refuse(0, fmt::format("expected a header of {} bytes, but the file ends at byte {}",
                                 length, source.size()));
  }
  std::string text(length, '\0');
  source.read(text.data(), safetensors::kLengthBytes, length);
  Header header = safetensors::parse_header(source, text, safetensors::kLengthBytes);
  std::string().swap(text);

  // Stable, since tensors without elements may begin where others do.
  std::ranges::stable_sort(header.entries, {},
                           [](const TensorInfo& e) { return std::pair(e.begin, e.end); });
  const std::uint64_t data_at = safetensors::kLengthBytes + length;
  check_layout(source, header.entries, source.size() - data_at, data_at);

  SafeTensors file;
  file.metadata = std::move(header.metadata);
  file.tensors.reserve(header.entries.size());
  for (TensorInfo& entry : header.entries) {
    Tensor tensor = source.read_tensor(data_at + entry.begin, entry.dtype, entry.shape);
    file.tensors.emplace_back(std::move(entry.name), std::move(tensor));
  }
  return file;
}

void write_safetensors(const SafeTensors& file, const ByteSink& sink) {
  refuse_ordering_in_trace("safetensors");
  std::vector<const std::pair<std::string, Tensor>*> order;
  for (const auto& named : file.tensors) {
    const Tensor& tensor = named.second;
    if (!tensor.defined() || tensor.is_meta()) {
      fail("[safetensors] expected a tensor with data for {}, got {}{}", in_quotes(named.first),
           tensor.defined() ? "the meta tensor " : "", tensor.describe());
    }
    order.push_back(&named);
  }
  std::ranges::stable_sort(order, std::greater{},
                           [](const auto* named) { return size_of(named->second.dtype()); });

  Header header{.entries = {}, .metadata = file.metadata};
  std::uint64_t at = 0;
  for (const auto* named : order) {
    const Tensor& tensor = named->second;
    TensorInfo entry{.name = named->first, .dtype = tensor.dtype(), .shape = Dims(tensor.shape())};
    entry.begin = at;
    entry.end = at += tensor.bytes();
    header.entries.push_back(std::move(entry));
  }
  const std::string text = safetensors::format_header(header);
  const std::uint64_t length = text.size();
  sink(&length, sizeof(length));
  sink(text.data(), text.size());
  for (const auto* named : order) {
    const Tensor host = contiguous_on_host(named->second, "safetensors");
    sink(host.data(), host.bytes());
  }
}

}  // namespace

const Tensor* SafeTensors::find(std::string_view name) const {
  const auto at = std::ranges::find(
      tensors, name, [](const auto& named) -> std::string_view { return named.first; });
  return at == tensors.end() ? nullptr : &at->second;
}

const Tensor& SafeTensors::at(std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  fail("[safetensors] expected one of {} tensors, got the name {}, which is not there",
       tensors.size(), in_quotes(name));
}

SafeTensors load_safetensors(const std::string& path) {
  return read_safetensors(ByteSource::open("safetensors", path));
}

SafeTensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  return read_safetensors(ByteSource("safetensors", name, bytes));
}

void save_safetensors(const std::string& path, const SafeTensors& file) {
  write_file("safetensors", path, [&](const ByteSink& sink) { write_safetensors(file, sink); });
}

std::vector<std::byte> format_safetensors(const SafeTensors& file) {
  std::vector<std::byte> bytes;
  write_safetensors(file, [&](const void* from, std::size_t count) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + count);
  });
  return bytes;
}

}  // namespace brrr
