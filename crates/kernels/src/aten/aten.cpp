// Bindings that tch lacks. Tensors are passed as in tch, as pointers to at::Tensor on the heap. Every
// function returns null on success, or an error message that the caller frees with zoo_aten_free.

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

// Null means success, so an error needs a message even if allocating its copy fails.
char out_of_memory_message[] = "out of memory while copying the error message";

char *copy_message(const char *message) {
  char *copy = strdup(message);
  return copy == nullptr ? out_of_memory_message : copy;
}

template <typename Work>
char *guarded(Work work) {
  try {
    work();
    return nullptr;
  } catch (const std::exception &error) {
    return copy_message(error.what());
  } catch (...) {
    return copy_message("an error without a message");
  }
}

std::string describe(const at::Tensor &tensor) {
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
        c10::str(name, " must be ", expected, ", got ", describe(got)));
  }
}

// Kernels read tensors through raw pointers, which need the strided layout.
bool is_dense(const at::Tensor &tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided;
}

bool is_like(const at::Tensor &tensor, const at::Tensor &other) {
  return is_dense(tensor) && tensor.scalar_type() == other.scalar_type() &&
         tensor.device() == other.device();
}

// Checks query, key and value of four dimensions each: [batch, seq, heads, d] or [batch, heads, seq, d].
void expect_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value) {
  expect(is_dense(query) && query.dim() == 4, "query", "Strided with 4 dimensions", query);
  bool key_fits = is_like(key, query) && key.dim() == 4 && key.size(0) == query.size(0) &&
                  key.size(3) == query.size(3);
  expect(key_fits, "key", c10::str("of the batch, width, dtype and device of query, ", describe(query)),
         key);
  bool value_fits = is_like(value, key) && value.dim() == 4 &&
                    value.sizes().slice(0, 3) == key.sizes().slice(0, 3);
  expect(value_fits, "value", c10::str("like key, but for its width, ", describe(key)), value);
}

// Seeds a device's default generator, and restores its state on destruction.
class SeedGuard {
 public:
  SeedGuard(const at::Device &device, uint64_t seed)
      : generator_(at::globalContext().defaultGenerator(device)) {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    seed_ = generator_.current_seed();
    offset_ = generator_.get_offset();
    generator_.set_current_seed(seed);
    generator_.set_offset(0);
  }
  ~SeedGuard() {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_current_seed(seed_);
    generator_.set_offset(offset_);
  }
  SeedGuard(const SeedGuard &) = delete;
  SeedGuard &operator=(const SeedGuard &) = delete;

 private:
  at::Generator generator_;
  uint64_t seed_ = 0;
  uint64_t offset_ = 0;
};

std::mutex seed_mutex;

}  // namespace

extern "C" {

void zoo_aten_free(char *message) {
  if (message != out_of_memory_message) {
    free(message);
  }
}

// Writes the data pointer of a strided f32 or bf16 tensor on the CPU (null if it is empty) to out, and whether
// it is contiguous.
char *zoo_aten_host_data(void **out, bool *is_contiguous, const at::Tensor *tensor, bool is_bf16) {
  return guarded([&] {
    auto dtype = is_bf16 ? at::kBFloat16 : at::kFloat;
    bool fits = is_dense(*tensor) && tensor->scalar_type() == dtype && tensor->device().is_cpu();
    const char *expected = is_bf16 ? "Strided BFloat16 on cpu" : "Strided Float on cpu";
    expect(fits, "the tensor", expected, *tensor);
    *is_contiguous = tensor->is_contiguous();
    *out = tensor->numel() == 0 ? nullptr : tensor->data_ptr();
  });
}

// An f32 tensor on the meta device, which has no memory.
char *zoo_aten_meta(at::Tensor **out, const int64_t *dims, size_t rank) {
  return guarded([&] {
    auto options = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
    out[0] = new at::Tensor(at::empty(at::IntArrayRef(dims, rank), options));
  });
}

// Query, key and value are [batch, seq, heads, d]; a window of -1 is unlimited.
// out: the context, and the log-sum-exp [batch, heads, seq].
char *zoo_aten_flash_forward(at::Tensor **out, const at::Tensor *query, const at::Tensor *key,
                             const at::Tensor *value, bool is_causal, double scale, int64_t left,
                             int64_t right) {
  return guarded([&] {
    expect_attention(*query, *key, *value);
    auto window = [](int64_t size) {
      return size < 0 ? std::optional<int64_t>() : std::optional<int64_t>(size);
    };
    auto result = at::_flash_attention_forward(
        *query, *key, *value, std::nullopt, std::nullopt, query->size(1), key->size(1), 0.0,
        is_causal, false, scale, window(left), window(right));
    out[0] = new at::Tensor(std::move(std::get<0>(result)));
    out[1] = new at::Tensor(std::move(std::get<1>(result)));
  });
}

// Query, key and value are [batch, heads, seq, d].
// out: the context, and the log-sum-exp [batch, heads, seq, 1].
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

// Query, key and value are [batch, seq, heads, d]; bias is [batch, heads, seq_q, seq_k] or null.
// out: the context, the log-sum-exp [batch, heads, seq, padded], and the seed and offset of dropout.
char *zoo_aten_efficient_forward(at::Tensor **out, const at::Tensor *query, const at::Tensor *key,
                                 const at::Tensor *value, const at::Tensor *bias, int64_t mask,
                                 double scale, double dropout, int64_t seed) {
  return guarded([&] {
    expect_attention(*query, *key, *value);
    std::optional<at::Tensor> optional_bias;
    if (bias != nullptr) {
      int64_t dims[] = {query->size(0), query->size(2), query->size(1), key->size(1)};
      bool fits = is_like(*bias, *query) && bias->sizes() == at::IntArrayRef(dims, 4);
      expect(fits, "bias",
             c10::str("of the dtype and device of query and ", at::IntArrayRef(dims, 4)), *bias);
      optional_bias = *bias;
    }
    auto call = [&] {
      auto result = at::_efficient_attention_forward(
          *query, *key, *value, optional_bias, std::nullopt, std::nullopt, std::nullopt, std::nullopt,
          dropout, mask, true, scale);
      out[0] = new at::Tensor(std::move(std::get<0>(result)));
      out[1] = new at::Tensor(std::move(std::get<1>(result)));
      out[2] = new at::Tensor(std::move(std::get<2>(result)));
      out[3] = new at::Tensor(std::move(std::get<3>(result)));
    };
    if (dropout > 0.0) {
      std::lock_guard<std::mutex> lock(seed_mutex);
      SeedGuard guard(query->device(), static_cast<uint64_t>(seed));
      call();
    } else {
      call();
    }
  });
}

// out: allocated bytes of a CUDA device, now and at their peak since the last reset.
char *zoo_aten_cuda_memory(uint64_t *out, int64_t index, bool reset_peak) {
  return guarded([&] {
    auto *allocator = c10::getDeviceAllocator(c10::DeviceType::CUDA);
    auto device = static_cast<c10::DeviceIndex>(index);
    if (reset_peak) {
      allocator->resetPeakStats(device);
    }
    auto stats = allocator->getDeviceStats(device);
    // Index 0 is the total of all pools.
    out[0] = static_cast<uint64_t>(stats.allocated_bytes[0].current);
    out[1] = static_cast<uint64_t>(stats.allocated_bytes[0].peak);
  });
}

// Backward pass of at::native_layer_norm. out: the gradients of input, gamma and beta.
char *zoo_aten_layer_norm_backward(at::Tensor **out, const at::Tensor *output_grad,
                                   const at::Tensor *input, const at::Tensor *gamma,
                                   const at::Tensor *mean, const at::Tensor *rstd) {
  return guarded([&] {
    bool is_input = is_dense(*input) && at::isFloatingType(input->scalar_type());
    expect(is_input, "input", "Strided and of a floating-point dtype", *input);
    bool is_gamma = is_like(*gamma, *input) && gamma->dim() >= 1 && gamma->dim() <= input->dim() &&
                    input->sizes().slice(input->dim() - gamma->dim()) == gamma->sizes();
    expect(is_gamma, "gamma", c10::str("the last dimensions of input, ", describe(*input)), *gamma);
    bool is_output_grad = is_like(*output_grad, *input) && output_grad->sizes() == input->sizes();
    expect(is_output_grad, "the output gradient", c10::str("like input, ", describe(*input)),
           *output_grad);
    int64_t rows = 1;
    for (int64_t size : input->sizes().slice(0, input->dim() - gamma->dim())) {
      rows *= size;
    }
    for (auto [name, got] : {std::make_pair("mean", mean), std::make_pair("rstd", rstd)}) {
      // On CUDA the statistics of half-precision rows are f32.
      bool fits = is_dense(*got) && got->device() == input->device() && got->numel() == rows &&
                  (got->scalar_type() == input->scalar_type() || got->scalar_type() == at::kFloat);
      expect(fits, name, c10::str("one value for each of the ", rows, " rows of input, ",
                                  describe(*input)), *got);
    }
    // The value of beta is not read, only whether there is one.
    auto result = at::native_layer_norm_backward(
        output_grad->contiguous(), *input, gamma->sizes(), mean->contiguous(), rstd->contiguous(),
        *gamma, *gamma, {true, true, true});
    out[0] = new at::Tensor(std::move(std::get<0>(result)));
    out[1] = new at::Tensor(std::move(std::get<1>(result)));
    out[2] = new at::Tensor(std::move(std::get<2>(result)));
  });
}

// A tensor over borrowed memory; `deleter` is called when its storage is freed.
char *zoo_aten_from_blob(at::Tensor **out, void *data, bool is_bf16, const int64_t *dims, size_t rank,
                         void *owner, void (*deleter)(void *)) {
  return guarded([&] {
    // As a context, the owner is deleted on errors too.
    auto tensor = at::for_blob(data, at::IntArrayRef(dims, rank))
                      .context(owner, deleter)
                      .options(at::TensorOptions().dtype(is_bf16 ? at::kBFloat16 : at::kFloat))
                      .make_tensor();
    out[0] = new at::Tensor(std::move(tensor));
  });
}

// An in-place Adam step of one parameter and its moments. `step` is a one-element tensor on the
// parameter's device: the number of the step, starting at 1.
char *zoo_aten_adam(const at::Tensor *parameter, const at::Tensor *gradient,
                    const at::Tensor *first, const at::Tensor *second, const at::Tensor *step,
                    bool is_adamw, double lr, double beta_1, double beta_2, double weight_decay,
                    double epsilon) {
  return guarded([&] {
    bool is_parameter = is_dense(*parameter) && parameter->is_contiguous() &&
                        at::isFloatingType(parameter->scalar_type());
    expect(is_parameter, "the parameter", "contiguous and of a floating-point dtype", *parameter);
    for (auto [name, got] : {std::make_pair("the gradient", gradient),
                             std::make_pair("the first moment", first),
                             std::make_pair("the second moment", second)}) {
      // The CPU kernel assumes that all have the parameter's size.
      bool fits = is_like(*got, *parameter) && got->is_contiguous() &&
                  got->sizes() == parameter->sizes();
      expect(fits, name, c10::str("contiguous and like the parameter, ", describe(*parameter)),
             *got);
    }
    bool is_step = is_dense(*step) && step->scalar_type() == at::kFloat && step->numel() == 1 &&
                   step->device() == parameter->device();
    expect(is_step, "step", c10::str("one Float on ", parameter->device()), *step);
    at::NoGradGuard no_gradients;
    std::vector<at::Tensor> parameters{*parameter}, gradients{*gradient}, firsts{*first},
        seconds{*second}, steps{*step};
    if (is_adamw) {
      at::_fused_adamw_(parameters, gradients, firsts, seconds, {}, steps, lr, beta_1, beta_2,
                        weight_decay, epsilon, false, false);
    } else {
      at::_fused_adam_(parameters, gradients, firsts, seconds, {}, steps, lr, beta_1, beta_2,
                       weight_decay, epsilon, false, false);
    }
  });
}

}  // extern "C"
