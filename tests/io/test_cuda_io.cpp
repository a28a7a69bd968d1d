// Tensors on a CUDA device in files and DLPack, over the driver for machines without a GPU.
#include "brrr/io/dlpack.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/stream.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"

using namespace brrr;
using namespace interchange;

namespace {

// The same elements and strides on the device.
Tensor on_cuda(const Tensor& tensor) {
  const std::size_t element = size_of(tensor.dtype());
  const auto length = static_cast<std::int64_t>(TensorImpl::of(tensor)->storage->bytes / element);
  const Tensor whole = make_tensor(tensor.dtype(), Dims{length}, cuda());
  copy_from_host(whole, TensorImpl::of(tensor)->storage->data);
  return make_view(whole, tensor.shape(), tensor.strides(), tensor.storage_offset());
}

}  // namespace

TEST_CASE("interchange: CUDA tensors of every layout are saved", "[cuda][interchange]") {
  const testing::FakeCuda fake;
  for (const DType dtype : {DType::f32, DType::f16, DType::boolean, DType::i64}) {
    for (const Tensor& tensor : layouts(dtype)) {
      INFO(tensor.describe() << " strides " << to_string(tensor.strides()));
      const Tensor there = on_cuda(tensor);
      CHECK(format_npy(there) == format_npy(tensor));
      CHECK(format_safetensors({{{"t", there}}, {}}) == format_safetensors({{{"t", tensor}}, {}}));
    }
  }
}

TEST_CASE("interchange: CUDA tensors go through DLPack without a copy", "[cuda][interchange]") {
  const testing::FakeCuda fake;
  const Tensor base = filled(DType::f32, {4, 6});
  const Tensor there = on_cuda(make_view(base, Dims{6, 4}, Dims{1, 6}));
  dlpack::DLManagedTensorVersioned* managed = to_dlpack(there);
  CHECK(managed->dl_tensor.device.device_type == dlpack::kDLCUDA);
  CHECK(managed->dl_tensor.device.device_id == 0);
  const Tensor back = from_dlpack(managed);
  CHECK(back.data() == there.data());
  CHECK(back.device() == cuda());
  CHECK(format_npy(back) == format_npy(there));

  managed = to_dlpack(there);
  managed->flags = dlpack::kReadOnly;
  const Tensor copy = from_dlpack(managed);
  CHECK(copy.data() != there.data());
  CHECK(format_npy(copy) == format_npy(there));

  const std::uint8_t bytes[] = {0, 1, 2};
  const Tensor bools = make_tensor(boolean, Dims{3}, cuda());
  copy_from_host(bools, bytes);
  CHECK(error_of([&] { from_dlpack(to_dlpack(bools)); }) ==
        "[dlpack] expected bools of 0 or 1, got a byte of 2");
  CHECK(from_dlpack(to_dlpack(make_view(bools, Dims{2}, Dims{1}))).device() == cuda());

  managed = to_dlpack(there);
  managed->dl_tensor.device.device_id = 1;
  CHECK(error_of([&] { from_dlpack(managed); }) ==
        "[dlpack] expected one of 1 CUDA device, got cuda:1");
}
