// What tch has no binding for, with tensors passed as tch passes them: pointers to
// at::Tensor on the heap. Every function returns nothing, or a message that the caller
// frees with zoo_aten_free.

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

// Null means success, so an error needs a message even where there is no memory for a copy.
char no_memory_for_message[] = "an error whose message did not fit into memory";

char *copy_of(const char *message) {
  char *copy = strdup(message);
  return copy == nullptr ? no_memory_for_message : copy;
}

template <typename Work>
char *guarded(Work work) {
  try {
    work();
    return nullptr;
  } catch (const std::exception &error) {
    return copy_of(error.what());
  } catch (...) {
    return copy_of("an error without a message");
  }
}

std::string described(const at::Tensor &tensor) {
  if (!tensor.defined()) {
    return "an undefined tensor";
  }
  bool is_strided = tensor.layout() == at::kStrided;
  return c10::str(is_strided && !tensor.is_contiguous() ? "non-contiguous " : "",
                  tensor.layout(), " ", tensor.scalar_type(), " ", tensor.sizes(), " on ",
                  tensor.device());
}

void expect(bool is_valid, const char *name, const std::string &expected, const at::Tensor &got) {
  if (!is_valid) {
    throw std::invalid_argument(
        c10::str(name, " must be ", expected, ", got ", described(got)));
  }
}

// Kernels read tensors through raw pointers: other layouts have no such memory.
bool is_dense(const at::Tensor &tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided;
}

bool is_like(const at::Tensor &tensor, const at::Tensor &other) {
  return is_dense(tensor) && tensor.scalar_type() == other.scalar_type() &&
         tensor.device() == other.device();
}

// Query, key and value of four dimensions each, of which the second is the heads or the length.
void expect_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value) {
  expect(is_dense(query) && query.dim() == 4, "query", "Strided with 4 dimensions", query);
  bool key_fits = is_like(key, query) && key.dim() == 4 && key.size(0) == query.size(0) &&
                  key.size(3) == query.size(3);
  expect(key_fits, "key", c10::str("of the batch, width, dtype and device of query, ", described(query)),
         key);
  bool value_fits = is_like(value, key) && value.dim() == 4 &&
                    value.sizes().slice(0, 3) == key.sizes().slice(0, 3);
  expect(value_fits, "value", c10::str("like key, but for its width, ", described(key)), value);
}

// Takes the place of a device's random numbers, and puts them back.
class Seeded {
 public:
  Seeded(const at::Device &device, uint64_t seed)
      : generator_(at::globalContext().defaultGenerator(device)) {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    seed_ = generator_.current_seed();
    offset_ = generator_.get_offset();
    generator_.set_current_seed(seed);
    generator_.set_offset(0);
  }
  ~Seeded() {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_current_seed(seed_);
    generator_.set_offset(offset_);
  }
  Seeded(const Seeded &) = delete;
  Seeded &operator=(const Seeded &) = delete;

 private:
  at::Generator generator_;
  uint64_t seed_ = 0;
  uint64_t offset_ = 0;
};

std::mutex one_seed_at_a_time;

}  // namespace

extern "C" {

void zoo_aten_free(char *message) {
  if (message != no_memory_for_message) {
    free(message);
  }
}

// Into out: where the elements of a dense f32 tensor on the CPU are (null if it has none), and
// whether they are contiguous.
char *zoo_aten_host_data(float **out, bool *is_contiguous, const at::Tensor *tensor) {
  return guarded([&] {
    bool fits = is_dense(*tensor) && tensor->scalar_type() == at::kFloat &&
                tensor->device().is_cpu();
    expect(fits, "the tensor", "Strided Float on cpu", *tensor);
    *is_contiguous = tensor->is_contiguous();
    *out = tensor->numel() == 0 ? nullptr : tensor->data_ptr<float>();
  });
}

// A tensor of f32 on the meta device, which has no memory.
char *zoo_aten_meta(at::Tensor **out, const int64_t *dims, size_t rank) {
  return guarded([&] {
    auto options = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
    out[0] = new at::Tensor(at::empty(at::IntArrayRef(dims, rank), options));
  });
}

// Query, key and value [batch, seq, heads, d]; a window of -1 reaches everything.
// Into out: the context, and the log-sum-exp [batch, heads, seq].
char *zoo_aten_flash_forward(at::Tensor **out, const at::Tensor *query, const at::Tensor *key,
                             const at::Tensor *value, bool is_causal, double scale, int64_t left,
                             int64_t right) {
  return guarded([&] {
    expect_attention(*query, *key, *value);
    auto side = [](int64_t reach) {
      return reach < 0 ? std::optional<int64_t>() : std::optional<int64_t>(reach);
    };
    auto result = at::_flash_attention_forward(
        *query, *key, *value, std::nullopt, std::nullopt, query->size(1), key->size(1), 0.0,
        is_causal, false, scale, side(left), side(right));
    out[0] = new at::Tensor(std::move(std::get<0>(result)));
    out[1] = new at::Tensor(std::move(std::get<1>(result)));
  });
}

// Query, key and value [batch, heads, seq, d].
// Into out: the context, and the log-sum-exp [batch, heads, seq, 1].
char *zoo_aten_cudnn_forward(at::Tensor **out, const at::Tensor *query, const at::Tensor *key,
                             const at::Tensor *value, bool is_causal, double scale) {
  return guarded([&] {
    expect_attention(*query, *key, *value);
    auto result = at::_scaled_dot_product_cudnn_attention(*query, *key, *value, std::nullopt, true,
                                                          0.0, is_causal, false, scale);
    out[0] = new at::Tensor(std::move(std::get<0>(result)));
    out[1] = new at::Tensor(std::move(std::get<1>(result)));
  });
}

// Query, key and value [batch, seq, heads, d]; a bias for every place or none.
// Into out: the context, the log-sum-exp [batch, heads, seq or more], and the seed and the
// offset that weights were dropped by.
char *zoo_aten_efficient_forward(at::Tensor **out, const at::Tensor *query, const at::Tensor *key,
                                 const at::Tensor *value, const at::Tensor *bias, int64_t mask,
                                 double scale, double dropped, int64_t seed) {
  return guarded([&] {
    expect_attention(*query, *key, *value);
    std::optional<at::Tensor> added;
    if (bias != nullptr) {
      int64_t full[] = {query->size(0), query->size(2), query->size(1), key->size(1)};
      bool fits = is_like(*bias, *query) && bias->sizes() == at::IntArrayRef(full, 4);
      expect(fits, "bias",
             c10::str("of the dtype and device of query and ", at::IntArrayRef(full, 4)), *bias);
      added = *bias;
    }
    auto call = [&] {
      auto result = at::_efficient_attention_forward(
          *query, *key, *value, added, std::nullopt, std::nullopt, std::nullopt, std::nullopt,
          dropped, mask, true, scale);
      out[0] = new at::Tensor(std::move(std::get<0>(result)));
      out[1] = new at::Tensor(std::move(std::get<1>(result)));
      out[2] = new at::Tensor(std::move(std::get<2>(result)));
      out[3] = new at::Tensor(std::move(std::get<3>(result)));
    };
    if (dropped > 0.0) {
      std::lock_guard<std::mutex> lock(one_seed_at_a_time);
      Seeded seeded(query->device(), static_cast<uint64_t>(seed));
      call();
    } else {
      call();
    }
  });
}

// Into out: bytes that tensors on a CUDA device have now and had at most, and what is reserved
// for them at most. Both peaks are those since they were last forgotten.
char *zoo_aten_cuda_memory(uint64_t *out, int64_t index, bool forget_peaks) {
  return guarded([&] {
    auto *allocator = c10::getDeviceAllocator(c10::DeviceType::CUDA);
    auto device = static_cast<c10::DeviceIndex>(index);
    if (forget_peaks) {
      allocator->resetPeakStats(device);
    }
    auto stats = allocator->getDeviceStats(device);
    // The first is the sum of all pools.
    out[0] = static_cast<uint64_t>(stats.allocated_bytes[0].current);
    out[1] = static_cast<uint64_t>(stats.allocated_bytes[0].peak);
    out[2] = static_cast<uint64_t>(stats.reserved_bytes[0].peak);
  });
}

// What at::native_layer_norm gave, back: into out the gradients by input, gamma and beta.
char *zoo_aten_layer_norm_backward(at::Tensor **out, const at::Tensor *arrived,
                                   const at::Tensor *input, const at::Tensor *gamma,
                                   const at::Tensor *mean, const at::Tensor *factor) {
  return guarded([&] {
    bool is_input = is_dense(*input) && at::isFloatingType(input->scalar_type());
    expect(is_input, "input", "Strided and of a floating-point dtype", *input);
    bool is_gamma = is_like(*gamma, *input) && gamma->dim() >= 1 && gamma->dim() <= input->dim() &&
                    input->sizes().slice(input->dim() - gamma->dim()) == gamma->sizes();
    expect(is_gamma, "gamma", c10::str("the last dimensions of input, ", described(*input)), *gamma);
    bool is_arrived = is_like(*arrived, *input) && arrived->sizes() == input->sizes();
    expect(is_arrived, "the upstream gradient", c10::str("like input, ", described(*input)), *arrived);
    int64_t rows = 1;
    for (int64_t size : input->sizes().slice(0, input->dim() - gamma->dim())) {
      rows *= size;
    }
    for (auto [name, got] : {std::make_pair("mean", mean), std::make_pair("factor", factor)}) {
      // On CUDA the statistics of half-precision rows are f32.
      bool fits = is_dense(*got) && got->device() == input->device() && got->numel() == rows &&
                  (got->scalar_type() == input->scalar_type() || got->scalar_type() == at::kFloat);
      expect(fits, name, c10::str("one number for each of the ", rows, " rows of input, ",
                                  described(*input)), *got);
    }
    // Beta itself is not looked at, but for its being there.
    auto result = at::native_layer_norm_backward(
        arrived->contiguous(), *input, gamma->sizes(), mean->contiguous(), factor->contiguous(),
        *gamma, *gamma, {true, true, true});
    out[0] = new at::Tensor(std::move(std::get<0>(result)));
    out[1] = new at::Tensor(std::move(std::get<1>(result)));
    out[2] = new at::Tensor(std::move(std::get<2>(result)));
  });
}

// A tensor of numbers that somebody else has; `done` is told when the last tensor over them is gone.
char *zoo_aten_of_numbers(at::Tensor **out, float *numbers, const int64_t *dims, size_t rank,
                          void *owner, void (*done)(void *)) {
  return guarded([&] {
    // As a context, it is done with on every way out.
    auto tensor = at::for_blob(numbers, at::IntArrayRef(dims, rank))
                      .context(owner, done)
                      .options(at::TensorOptions().dtype(at::kFloat))
                      .make_tensor();
    out[0] = new at::Tensor(std::move(tensor));
  });
}

// One step for one parameter; the parameter and both moments are written over.
// `time` is a number on the parameter's device: this step's, counted from 1.
char *zoo_aten_adam(const at::Tensor *parameter, const at::Tensor *gradient,
                    const at::Tensor *first, const at::Tensor *second, const at::Tensor *time,
                    bool is_adamw, double rate, double beta_1, double beta_2, double decay,
                    double epsilon) {
  return guarded([&] {
    bool is_parameter = is_dense(*parameter) && parameter->is_contiguous() &&
                        at::isFloatingType(parameter->scalar_type());
    expect(is_parameter, "the parameter", "contiguous and of a floating-point dtype", *parameter);
    for (auto [name, got] : {std::make_pair("the gradient", gradient),
                             std::make_pair("the first moment", first),
                             std::make_pair("the second moment", second)}) {
      // The kernel for the CPU takes the parameter's size for that of all.
      bool fits = is_like(*got, *parameter) && got->is_contiguous() &&
                  got->sizes() == parameter->sizes();
      expect(fits, name, c10::str("contiguous and like the parameter, ", described(*parameter)),
             *got);
    }
    bool is_time = is_dense(*time) && time->scalar_type() == at::kFloat && time->numel() == 1 &&
                   time->device() == parameter->device();
    expect(is_time, "time", c10::str("one Float on ", parameter->device()), *time);
    at::NoGradGuard no_gradients;
    std::vector<at::Tensor> parameters{*parameter}, gradients{*gradient}, firsts{*first},
        seconds{*second}, times{*time};
    if (is_adamw) {
      at::_fused_adamw_(parameters, gradients, firsts, seconds, {}, times, rate, beta_1, beta_2,
                        decay, epsilon, false, false);
    } else {
      at::_fused_adam_(parameters, gradients, firsts, seconds, {}, times, rate, beta_1, beta_2,
                       decay, epsilon, false, false);
    }
  });
}

}  // extern "C"
