#include <functional>

#include "brrr/io/dlpack.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/stream.h"
#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"

using namespace brrr;
using namespace brrr::dlpack;
using namespace interchange;

namespace {

// A producer of its own: owns values and shape, counts how often the deleter ran.
struct Producer {
  std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<std::int64_t> shape = {2, 3}, strides = {3, 1};
  int deleted = 0;
  DLManagedTensorVersioned managed{};

  Producer() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Producer*>(self->manager_ctx)->deleted;
    };
    DLTensor& t = managed.dl_tensor;
    t.data = values.data();
    t.device = {kDLCPU, 0};
    t.ndim = 2;
    t.dtype = {kDLFloat, 32, 1};
    t.shape = shape.data();
    t.strides = strides.data();
  }
};

void set_shape(Producer& p, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
  p.shape = std::move(shape);
  p.strides = std::move(strides);
  p.managed.dl_tensor.ndim = static_cast<std::int32_t>(p.shape.size());
  p.managed.dl_tensor.shape = p.shape.data();
  p.managed.dl_tensor.strides = p.strides.empty() ? nullptr : p.strides.data();
}

template <class F>
std::string refusal(F&& change) {
  Producer p;
  change(p);
  const std::string text = error_of([&] { from_dlpack(&p.managed); });
  CHECK(p.deleted == 1);  // taken over, whatever happened
  return text;
}

}  // namespace

TEST_CASE("dlpack: every dtype and layout round-trips on the same memory", "[dlpack]") {
  for (const DType dtype : kAllDTypes) {
    for (const Tensor& tensor : layouts(dtype)) {
      INFO(tensor.describe() << " strides " << to_string(tensor.strides()));
      if (std::ranges::any_of(tensor.strides(), [](std::int64_t s) { return s < 0; })) continue;
      for (const bool legacy : {false, true}) {
        const Tensor back =
            legacy ? from_dlpack(to_dlpack_legacy(tensor)) : from_dlpack(to_dlpack(tensor));
        CHECK(same(tensor, back));
        if (tensor.numel() > 0) {
          CHECK(back.data() == tensor.data());
          CHECK(std::ranges::equal(back.strides(), tensor.strides()));
        }
      }
    }
  }
}

TEST_CASE("dlpack: what is exported", "[dlpack]") {
  const std::pair<DType, DLDataType> types[] = {
      {DType::f32, {2, 32, 1}},   {DType::f64, {2, 64, 1}}, {DType::f16, {2, 16, 1}},
      {DType::bf16, {4, 16, 1}},  {DType::i32, {0, 32, 1}}, {DType::i64, {0, 64, 1}},
      {DType::boolean, {6, 8, 1}}};
  for (const auto& [dtype, type] : types) {
    DLManagedTensorVersioned* m = to_dlpack(filled(dtype, {2, 3}));
    CHECK(m->version.major == 1);
    CHECK(m->flags == 0);
    const DLTensor& t = m->dl_tensor;
    CHECK((t.dtype.code == type.code && t.dtype.bits == type.bits && t.dtype.lanes == 1));
    CHECK((t.device.device_type == 1 && t.device.device_id == 0));
    CHECK(t.ndim == 2);
    CHECK((t.shape[0] == 2 && t.shape[1] == 3 && t.strides[0] == 3 && t.strides[1] == 1));
    CHECK(t.byte_offset == 0);
    m->deleter(m);
  }
  DLManagedTensorVersioned* empty = to_dlpack(filled(DType::f32, {0, 3}));
  CHECK(empty->dl_tensor.data == nullptr);
  empty->deleter(empty);
  DLManagedTensor* scalar = to_dlpack_legacy(filled(DType::f32, {}));
  CHECK(scalar->dl_tensor.ndim == 0);
  scalar->deleter(scalar);

  CHECK(error_of([] { to_dlpack(Tensor()); }) ==
        "[dlpack] expected a tensor with data, got an undefined tensor");
  CHECK(error_of([] { to_dlpack_legacy(make_meta_tensor(DType::f32, Dims{2}, cpu)); }) ==
        "[dlpack] expected a tensor with data, got the meta tensor f32[2]");
}

TEST_CASE("dlpack: an export keeps the memory until its deleter runs", "[dlpack]") {
  const std::int64_t before = memory_stats(cpu).live;
  DLManagedTensorVersioned* managed;
  {
    const Tensor tensor = tensor_of<float>({2}, {1, 2});
    managed = to_dlpack(tensor);
    static_cast<float*>(managed->dl_tensor.data)[0] = 5;  // the same memory, both ways
    CHECK(tensor.data<float>()[0] == 5);
  }
  CHECK(memory_stats(cpu).live == before + 8);
  CHECK(static_cast<float*>(managed->dl_tensor.data)[1] == 2);
  managed->deleter(managed);
  CHECK(memory_stats(cpu).live == before);
}

TEST_CASE("dlpack: an import lives as long as its last view", "[dlpack]") {
  Producer p;
  {
    Tensor view;
    {
      const Tensor tensor = from_dlpack(&p.managed);
      CHECK(tensor.data() == p.values.data());
      CHECK(Dims(tensor.shape()) == Dims{2, 3});
      view = make_view(tensor, Dims{3}, Dims{1}, 3);
    }
    CHECK(p.deleted == 0);
    p.values[3] = 42;
    CHECK(view.data<float>()[0] == 42);
  }
  CHECK(p.deleted == 1);

  SECTION("a null deleter is nothing to call") {
    p.managed.deleter = nullptr;
    CHECK(from_dlpack(&p.managed).numel() == 6);
  }
  SECTION("the older form") {
    DLManagedTensor legacy{p.managed.dl_tensor, &p, [](DLManagedTensor* self) {
                             ++static_cast<Producer*>(self->manager_ctx)->deleted;
                           }};
    CHECK(from_dlpack(&legacy).data<float>()[1] == 1);
    CHECK(p.deleted == 2);
    legacy.dl_tensor.ndim = -1;
    CHECK(error_of([&] { from_dlpack(&legacy); }) == "[dlpack] expected 0 to 8 dimensions, got -1");
    CHECK(p.deleted == 3);
  }
}

TEST_CASE("dlpack: forms of layout that others send", "[dlpack]") {
  Producer p;
  DLTensor& t = p.managed.dl_tensor;
  const auto taken = [&] { return from_dlpack(&p.managed); };
  const Bytes six = elements(tensor_of<float>({6}, {0, 1, 2, 3, 4, 5}));

  t.strides = nullptr;
  CHECK(taken().is_contiguous());
  CHECK(elements(taken()) == six);

  t.byte_offset = 8;
  CHECK(elements(taken()) == elements(tensor_of<float>({6}, {2, 3, 4, 5, 6, 7})));
  t.byte_offset = 0;

  set_shape(p, {3, 2}, {1, 3});
  CHECK(elements(taken()) == elements(tensor_of<float>({6}, {0, 3, 1, 4, 2, 5})));
  set_shape(p, {2, 2}, {0, 1});
  CHECK(elements(taken()) == elements(tensor_of<float>({4}, {0, 1, 0, 1})));
  set_shape(p, {1, 6}, {-77, 1});  // the stride of a single element means nothing
  CHECK(elements(taken()) == six);

  set_shape(p, {}, {});
  t.shape = nullptr;
  CHECK(taken().rank() == 0);
  set_shape(p, {0, 3}, {});
  t.data = nullptr;
  CHECK(Dims(taken().shape()) == Dims{0, 3});
  t.data = p.values.data();
  set_shape(p, {6}, {1});
  t.device = {kDLCUDAHost, 0};
  CHECK(taken().device() == cpu);
  p.managed.version = {1, 99};
  CHECK(taken().numel() == 6);
  p.managed.flags = 2;  // "is a copy" is of no interest
  CHECK(taken().data() == p.values.data());
}

TEST_CASE("dlpack: elements that overlap are read, and not written", "[dlpack]") {
  Producer p;
  set_shape(p, {3, 2}, {1, 1});  // a window that slides
  Tensor windows = from_dlpack(&p.managed);
  CHECK(elements(windows) == elements(tensor_of<float>({6}, {0, 1, 1, 2, 2, 3})));
  CHECK(to_vector<float>(windows * 2) == std::vector<float>{0, 2, 2, 4, 4, 6});
  CHECK(item(sum(windows)) == 9);
  const std::string text = error_of([&] { add_(windows, 1); });
  CHECK(text ==
        "[add_] expected an output whose elements are distinct, got f32[3, 2] with strides [1, 1]");
  CHECK(error_of([&] { fill_(windows, 1); }).starts_with("[fill_] expected an output"));
  Tensor part = slice(windows, 0, 0, 3, 2);  // every second window stands alone
  add_(part, 10);
  CHECK(p.values == std::vector<float>{10, 11, 12, 13, 4, 5, 6, 7});

  set_shape(p, {2, 2, 2}, {2, 4, 1});  // distinct, in an order of its own
  Tensor distinct = from_dlpack(&p.managed);
  zero_(distinct);
  CHECK(p.values == std::vector<float>(8, 0));
  set_shape(p, {2, 3}, {2, 1});
  Tensor closer = from_dlpack(&p.managed);
  CHECK(error_of([&] { zero_(closer); }).find("distinct") != std::string::npos);
  set_shape(p, {1, 3}, {1, 1});  // the stride of a single element means nothing
  Tensor single = from_dlpack(&p.managed);
  fill_(single, 2);
  CHECK(p.values == std::vector<float>{2, 2, 2, 0, 0, 0, 0, 0});
}

TEST_CASE("dlpack: a read-only tensor is copied", "[dlpack]") {
  Producer p;
  p.managed.flags = kReadOnly;
  set_shape(p, {2, 2}, {4, 2});
  const Tensor tensor = from_dlpack(&p.managed);
  CHECK(p.deleted == 1);
  p.values.assign(8, -1);
  CHECK(elements(tensor) == elements(tensor_of<float>({4}, {0, 2, 4, 6})));
  set_shape(p, {0, 2}, {});
  CHECK(from_dlpack(&p.managed).numel() == 0);
  set_shape(p, {}, {});
  CHECK(from_dlpack(&p.managed).numel() == 1);
}

TEST_CASE("dlpack: work on the CPU's current stream is done before an export", "[dlpack]") {
  const Tensor tensor = tensor_of<float>({1}, {0});
  const Stream stream{cpu};
  const StreamGuard guard(stream);
  stream.enqueue([tensor] {
    for (int i = 0; i < 1000; ++i) tensor.data<float>()[0] += 1;
  });
  DLManagedTensorVersioned* managed = to_dlpack(tensor);
  CHECK(static_cast<float*>(managed->dl_tensor.data)[0] == 1000);
  managed->deleter(managed);
}

TEST_CASE("dlpack: bools are bytes of 0 and 1", "[dlpack]") {
  unsigned char bytes[] = {0, 1, 7, 1, 0, 255};
  const auto take = [&](Producer& p, std::vector<std::int64_t> shape,
                        std::vector<std::int64_t> strides) {
    set_shape(p, std::move(shape), std::move(strides));
    p.managed.dl_tensor.data = bytes;
    p.managed.dl_tensor.dtype = {kDLBool, 8, 1};
  };
  CHECK(refusal([&](Producer& p) { take(p, {6}, {}); }) ==
        "[dlpack] expected bools of 0 or 1, got a byte of 7");
  CHECK(refusal([&](Producer& p) {
          take(p, {2, 2}, {4, 1});
        }) == "[dlpack] expected bools of 0 or 1, got a byte of 255");
  // Bytes between the elements are none, and what a stride of 0 repeats is read once.
  Producer p;
  take(p, {2, 2, std::int64_t{1} << 40}, {3, 1, 0});
  const Tensor x = from_dlpack(&p.managed);
  CHECK(to_vector<bool>(select(x, 2, 5)) == std::vector<bool>{false, true, true, false});
}

namespace {

struct Damage {
  std::function<void(Producer&, DLTensor&)> change;
  const char* expected;
};

void check_refusals(const std::vector<Damage>& damages) {
  for (const Damage& each : damages) {
    CHECK(refusal([&](Producer& p) { each.change(p, p.managed.dl_tensor); }) ==
          std::string("[dlpack] ") + each.expected);
  }
}

}  // namespace

TEST_CASE("dlpack: an import that is refused names the reason and is returned", "[dlpack]") {
  CHECK(error_of([] { from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)); }) ==
        "[dlpack] expected a DLManagedTensorVersioned, got a null pointer");
  CHECK(error_of([] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); }) ==
        "[dlpack] expected a DLManagedTensor, got a null pointer");

  check_refusals({
      {[](Producer& p, DLTensor&) {
         p.managed.version = {2, 3};
       },
       "expected version 1.x, got 2.3"},
      {[](Producer& p, DLTensor&) {
         p.managed.version = {0, 8};
       },
       "expected version 1.x, got 0.8"},
      {[](Producer&, DLTensor& t) { t.dtype.lanes = 4; },
       "expected elements of 1 lane, got 4 lanes of float32"},
      {[](Producer&, DLTensor& t) {
         t.dtype = {kDLUInt, 8, 1};
       },
       "expected float32, float64, float16, bfloat16, int32, int64 or bool8, got uint8"},
      {[](Producer&, DLTensor& t) {
         t.dtype = {kDLComplex, 64, 1};
       },
       "expected float32, float64, float16, bfloat16, int32, int64 or bool8, got complex64"},
      {[](Producer&, DLTensor& t) {
         t.dtype = {kDLBool, 1, 1};
       },
       "expected float32, float64, float16, bfloat16, int32, int64 or bool8, got bool1"},
      {[](Producer&, DLTensor& t) {
         t.dtype = {10, 8, 1};
       },
       "expected float32, float64, float16, bfloat16, int32, int64 or bool8, got code 10 of 8 "
       "bits"},
      {[](Producer&, DLTensor& t) {
         t.device = {8, 0};
       },
       "expected memory of the CPU (device type 1), of CUDA (2) or pinned (3), got device type 8"},
      {[](Producer&, DLTensor& t) {
         t.device = {kDLCUDA, -1};
       },
       "expected a CUDA device from 0 to 15, got -1"},
      {[](Producer&, DLTensor& t) {
         t.device = {kDLCUDA, 16};
       },
       "expected a CUDA device from 0 to 15, got 16"},
  });
}

TEST_CASE("dlpack: an import of a shape, strides or data that do not fit is refused", "[dlpack]") {
  const std::int64_t huge = std::int64_t{1} << 62;
  check_refusals({
      {[](Producer&, DLTensor& t) { t.ndim = -2; }, "expected 0 to 8 dimensions, got -2"},
      {[](Producer&, DLTensor& t) { t.ndim = 9; }, "expected 0 to 8 dimensions, got 9"},
      {[](Producer&, DLTensor& t) { t.shape = nullptr; },
       "expected a shape of 2 dimensions, got a null pointer"},
      {[](Producer& p, DLTensor&) {
         set_shape(p, {2, -3}, {});
       },
       "expected dimensions of at least 0, got shape [2, -3]"},
      {[=](Producer& p, DLTensor&) {
         set_shape(p, {huge, 2}, {});
       },
       "expected a size that fits into 63 bits, got shape [4611686018427387904, 2] of 4-byte "
       "elements"},
      {[=](Producer& p, DLTensor&) {
         set_shape(p, {3, 2}, {huge, 1});
       },
       "expected a range of bytes that fits into 63 bits, got shape [3, 2] with strides "
       "[4611686018427387904, 1]"},
      {[](Producer& p, DLTensor&) {
         set_shape(p, {2, 3}, {3, -1});
       },
       "expected strides of at least 0, got strides [3, -1]: copy the array first"},
      {[](Producer&, DLTensor& t) { t.data = nullptr; },
       "expected data for f32[2, 3], got a null pointer"},
      {[](Producer&, DLTensor& t) { t.byte_offset = 6; },
       "expected data at a multiple of 4 bytes for f32, got an address 2 past one"},
      {[](Producer&, DLTensor& t) { t.byte_offset = ~std::uint64_t{0}; },
       "expected memory inside the address space, got byte offset 18446744073709551615 and 24 "
       "bytes"},
  });
}
