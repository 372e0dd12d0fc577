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
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace {

template <typename Work>
char *guarded(Work work) {
  try {
    work();
    return nullptr;
  } catch (const std::exception &error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("an error without a message");
  }
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

void zoo_aten_free(char *message) { free(message); }

// Query, key and value [batch, seq, heads, d]; a window of -1 reaches everything.
// Into out: the context, and the log-sum-exp [batch, heads, seq].
char *zoo_aten_flash_forward(at::Tensor **out, const at::Tensor *query, const at::Tensor *key,
                             const at::Tensor *value, bool is_causal, double scale, int64_t left,
                             int64_t right) {
  return guarded([&] {
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
    std::optional<at::Tensor> added;
    if (bias != nullptr) {
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
    // Beta itself is not looked at, but for its being there.
    auto result = at::native_layer_norm_backward(arrived->contiguous(), *input, gamma->sizes(),
                                                 *mean, *factor, *gamma, *gamma,
                                                 {true, true, true});
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
