/* SPDX-License-Identifier: MIT
 *
 * Training mixtures of experts in C++17 and newer, by the rules of ffn.hpp: the noise of routers, their losses, and backward passes.
 *
 *     ffn::moe_run told(tokens, 8, 2, {}, {}, {}, scores, counts);      the forward pass tells scores and counts,
 *     ffn::run_options run;
 *     run.moe = &told;
 *     layer.record(tape, x, y, run);
 *     ffn::moe_balance balance(8, 2, scores, counts, d_scores);         a loss adds its gradient by the scores to d_scores,
 *     ffn::moe_loss(ffn_moe_loss_switch, balance);
 *     ffn::moe_backward losses(tokens, 8, 2, {}, d_scores);             and the backward pass takes it in
 *     ffn::backward_options backward;
 *     backward.moe = &losses;
 *     layer.backward(tape, d_y, d_x, gradients, backward);
 */
#ifndef FFN_FFN_MOE_TRAINING_HPP
#define FFN_FFN_MOE_TRAINING_HPP

#include <ffn/ffn_moe.hpp>

namespace ffn {

using moe_noise = detail::sized<ffn_moe_noise_t>;
using moe_route_gradients = detail::sized<ffn_moe_route_gradients_t>;
using moe_logits_gradients = detail::sized<ffn_moe_logits_gradients_t>;

/* ------------------------------------------------------------------ Noise */

/* Jitter: out = x * (1 + size * (2 u - 1)), rows of that width; out may be x. The backward pass is the same call on derivatives. */
inline ffn_status_t try_moe_jitter(const ffn_moe_noise_t &noise, std::int64_t width, span<const float> x, span<float> out,
                                   context *in = nullptr) noexcept {
    const std::int64_t rows = detail::rows_of(x.size(), width);
    ffn_status_t status = detail::sized_as("x", x.size(), rows, width);
    if (status == FFN_OK) status = detail::sized_as("out", out.size(), rows, width);
    return status == FFN_OK ? detail::told(ffn_moe_jitter(detail::handle_of(in), &noise, rows, width, x.data(), 0, out.data(), 0)) : status;
}

/* logits += (size + softplus(noise_logits)) * z, z normal; without noise_logits logits += size * z. Both [tokens, experts]. */
inline ffn_status_t try_moe_add_noise(const ffn_moe_noise_t &noise, std::int64_t experts, span<float> logits, span<const float> noise_logits = {},
                                      context *in = nullptr) noexcept {
    const std::int64_t tokens = detail::rows_of(logits.size(), experts);
    ffn_status_t status = detail::sized_as("logits", logits.size(), tokens, experts);
    if (status == FFN_OK) status = detail::sized_as("noise_logits", noise_logits.size(), tokens, experts, true);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_add_noise(detail::handle_of(in), &noise, tokens, experts, detail::or_null(noise_logits), logits.data()));
}

/* d_noise_logits = d_logits * z * sigmoid(noise_logits), with the z of try_moe_add_noise. All [tokens, experts]. */
inline ffn_status_t try_moe_add_noise_backward(const ffn_moe_noise_t &noise, std::int64_t experts, span<const float> noise_logits,
                                               span<const float> d_logits, span<float> d_noise_logits, context *in = nullptr) noexcept {
    const std::int64_t tokens = detail::rows_of(noise_logits.size(), experts);
    ffn_status_t status = detail::sized_as("noise_logits", noise_logits.size(), tokens, experts);
    if (status == FFN_OK) status = detail::sized_as("d_logits", d_logits.size(), tokens, experts);
    if (status == FFN_OK) status = detail::sized_as("d_noise_logits", d_noise_logits.size(), tokens, experts);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_add_noise_backward(detail::handle_of(in), &noise, tokens, experts, noise_logits.data(), d_logits.data(),
                                                   d_noise_logits.data()));
}

/* SparseMixer as it is trained (arXiv 2310.00811), where top_k is 2: draws ids, and writes weights that are whole or a third. */
inline ffn_status_t try_moe_sparse_mixer_sample(const ffn_moe_noise_t &noise, float jitter_eps, span<const float> logits,
                                                const ffn_moe_routing_t &routing, context *in = nullptr) noexcept {
    ffn_status_t status = detail::sized_as("logits", logits.size(), routing.tokens, routing.experts);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_sparse_mixer_sample(detail::handle_of(in), &noise, jitter_eps, logits.data(), &routing));
}

/* ----------------------------------------------------------------- Losses */

/* The arrays of a load-balancing loss. flags and coefficient are fields, as in C. */
class moe_balance : public detail::sized<ffn_moe_balance_t> {
public:
    moe_balance() noexcept = default;

    /* probabilities [tokens, experts]: scores. counts [groups, experts], of groups of of_group_tokens tokens (0: all are one): as try_moe_count or a run
     * tells them. gradient [tokens, experts]: the loss's derivative by each probability is ADDED to it. mask [tokens]: 0 is padding. */
    ffn_status_t try_assign(std::int64_t of_experts, std::int64_t of_top_k, span<const float> of_probabilities, span<const std::int64_t> of_counts,
                            span<float> of_gradient = {}, std::int64_t of_group_tokens = 0, span<const std::uint8_t> of_mask = {}) noexcept {
        const std::int64_t of_tokens = detail::rows_of(of_probabilities.size(), of_experts);
        ffn_status_t status = detail::sized_as("probabilities", of_probabilities.size(), of_tokens, of_experts);
        if (status == FFN_OK) status = detail::sized_as("counts", of_counts.size(), detail::groups_of(of_tokens, of_group_tokens), of_experts);
        if (status == FFN_OK) status = detail::sized_as("gradient", of_gradient.size(), of_tokens, of_experts, true);
        if (status == FFN_OK) status = detail::sized_as("mask", of_mask.size(), of_tokens, 1, true);
        if (status != FFN_OK) return status;
        tokens = of_tokens;
        experts = of_experts;
        top_k = of_top_k;
        group_tokens = of_group_tokens;
        probabilities = of_probabilities.data();
        counts = of_counts.data();
        mask = detail::or_null(of_mask);
        gradient = detail::or_null(of_gradient);
        return FFN_OK;
    }

#if FFN_EXCEPTIONS
    moe_balance(std::int64_t of_experts, std::int64_t of_top_k, span<const float> of_probabilities, span<const std::int64_t> of_counts,
                span<float> of_gradient = {}, std::int64_t of_group_tokens = 0, span<const std::uint8_t> of_mask = {}) {
        detail::check(try_assign(of_experts, of_top_k, of_probabilities, of_counts, of_gradient, of_group_tokens, of_mask));
    }
#endif
};

/* A load-balancing loss: ffn_moe_loss_switch, ffn_moe_loss_gshard, ffn_moe_loss_huggingface, ffn_moe_loss_megatron or ffn_moe_loss_deepseek, as in
 * try_moe_loss(value, ffn_moe_loss_switch, balance). */
inline ffn_status_t try_moe_loss(double &value, ffn_status_t (*loss)(const ffn_moe_balance_t *, double *), const ffn_moe_balance_t &balance) noexcept {
    return detail::told(loss(&balance, &value));
}

/* The router z-loss (ST-MoE, arXiv 2202.08906): coefficient (0: 1) * mean over tokens of (log sum_e e^z_te)^2, over logits [tokens, experts]. Its derivative
 * by each logit is ADDED to gradient [tokens, experts]; mask [tokens]: 0 is padding. */
inline ffn_status_t try_moe_loss_z(double &value, std::int64_t experts, span<const float> logits, double coefficient = 1, span<float> gradient = {},
                                   span<const std::uint8_t> mask = {}) noexcept {
    const std::int64_t tokens = detail::rows_of(logits.size(), experts);
    ffn_status_t status = detail::sized_as("logits", logits.size(), tokens, experts);
    if (status == FFN_OK) status = detail::sized_as("gradient", gradient.size(), tokens, experts, true);
    if (status == FFN_OK) status = detail::sized_as("mask", mask.size(), tokens, 1, true);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_loss_z(tokens, experts, logits.data(), detail::or_null(mask), coefficient, detail::or_null(gradient), &value));
}

/* selection_bias += rate * sign(mean of the counts - counts): DeepSeek-V3. */
inline ffn_status_t try_moe_update_bias(span<const std::int64_t> counts, float rate, span<float> selection_bias) noexcept {
    const std::int64_t experts = static_cast<std::int64_t>(selection_bias.size());
    ffn_status_t status = detail::sized_as("counts", counts.size(), 1, experts);
    return status == FFN_OK ? detail::told(ffn_moe_update_bias(experts, counts.data(), rate, selection_bias.data())) : status;
}

/* -------------------------------------------------------- Backward passes */

/* What is particular to the backward pass of a mixture: where the losses of routers come in, and where a router of the program's own goes on. */
class moe_backward : public detail::sized<ffn_moe_backward_t> {
public:
    moe_backward() noexcept = default;

    /* Of a run of so many tokens, of a layer of so many experts (identity experts included), with as many choices as the routing had, if the run brought one.
     * of_d_logits, of_d_scores [tokens, experts]: added to the derivatives by the logits, the z-loss's gradient, and by the scores, the load-balancing
     * losses' ones; of a run that routed. of_d_weights [tokens, top_k]: the derivatives by the weights are written to it. */
    ffn_status_t try_assign(std::int64_t of_tokens, std::int64_t of_experts, std::int64_t of_top_k, span<const float> of_d_logits,
                            span<const float> of_d_scores = {}, span<float> of_d_weights = {}) noexcept {
        ffn_status_t status = detail::sized_as("d_logits", of_d_logits.size(), of_tokens, of_experts, true);
        if (status == FFN_OK) status = detail::sized_as("d_scores", of_d_scores.size(), of_tokens, of_experts, true);
        if (status == FFN_OK) status = detail::sized_as("d_weights", of_d_weights.size(), of_tokens, of_top_k, true);
        if (status != FFN_OK) return status;
        d_logits = detail::or_null(of_d_logits);
        d_scores = detail::or_null(of_d_scores);
        d_weights = detail::or_null(of_d_weights);
        return FFN_OK;
    }

#if FFN_EXCEPTIONS
    moe_backward(std::int64_t of_tokens, std::int64_t of_experts, std::int64_t of_top_k, span<const float> of_d_logits, span<const float> of_d_scores = {},
                 span<float> of_d_weights = {}) {
        detail::check(try_assign(of_tokens, of_experts, of_top_k, of_d_logits, of_d_scores, of_d_weights));
    }
#endif
};

/* The backward pass of try_moe_route: the pointers in the gradients are the caller's word. */
inline ffn_status_t try_moe_route_backward(const ffn_moe_router_options_t &options, span<const float> logits, const ffn_moe_routing_t &routing,
                                           const ffn_moe_route_gradients_t &gradients, span<const float> expert_scale = {},
                                           context *in = nullptr) noexcept {
    ffn_status_t status = detail::sized_as("logits", logits.size(), routing.tokens, routing.experts);
    if (status == FFN_OK) status = detail::sized_as("expert_scale", expert_scale.size(), 1, routing.experts, true);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_route_backward(detail::handle_of(in), &options, logits.data(), detail::or_null(expert_scale), &routing, &gradients));
}

/* The backward pass of try_moe_logits, likewise. */
inline ffn_status_t try_moe_logits_backward(const ffn_moe_logits_options_t &options, span<const float> x, const ffn_moe_logits_gradients_t &gradients,
                                            context *in = nullptr) noexcept {
    const std::int64_t tokens = detail::rows_of(x.size(), options.d_model);
    ffn_status_t status = detail::sized_as("x", x.size(), tokens, options.d_model);
    return status == FFN_OK ? detail::told(ffn_moe_logits_backward(detail::handle_of(in), &options, tokens, x.data(), 0, &gradients)) : status;
}

/* The backward pass of try_moe_sparse_mixer and try_moe_sparse_mixer_sample: gradients has d_weights alone. */
inline ffn_status_t try_moe_sparse_mixer_backward(float jitter_eps, span<const float> logits, const ffn_moe_routing_t &routing,
                                                  const ffn_moe_route_gradients_t &gradients, context *in = nullptr) noexcept {
    ffn_status_t status = detail::sized_as("logits", logits.size(), routing.tokens, routing.experts);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_sparse_mixer_backward(detail::handle_of(in), jitter_eps, logits.data(), &routing, &gradients));
}

#if FFN_EXCEPTIONS
inline void moe_jitter(const ffn_moe_noise_t &noise, std::int64_t width, span<const float> x, span<float> out, context *in = nullptr) {
    detail::check(try_moe_jitter(noise, width, x, out, in));
}
inline void moe_add_noise(const ffn_moe_noise_t &noise, std::int64_t experts, span<float> logits, span<const float> noise_logits = {},
                          context *in = nullptr) {
    detail::check(try_moe_add_noise(noise, experts, logits, noise_logits, in));
}
inline void moe_add_noise_backward(const ffn_moe_noise_t &noise, std::int64_t experts, span<const float> noise_logits, span<const float> d_logits,
                                   span<float> d_noise_logits, context *in = nullptr) {
    detail::check(try_moe_add_noise_backward(noise, experts, noise_logits, d_logits, d_noise_logits, in));
}
inline void moe_sparse_mixer_sample(const ffn_moe_noise_t &noise, float jitter_eps, span<const float> logits, const ffn_moe_routing_t &routing,
                                    context *in = nullptr) {
    detail::check(try_moe_sparse_mixer_sample(noise, jitter_eps, logits, routing, in));
}
inline double moe_loss(ffn_status_t (*loss)(const ffn_moe_balance_t *, double *), const ffn_moe_balance_t &balance) {
    double value = 0;
    detail::check(try_moe_loss(value, loss, balance));
    return value;
}
inline double moe_loss_z(std::int64_t experts, span<const float> logits, double coefficient = 1, span<float> gradient = {},
                         span<const std::uint8_t> mask = {}) {
    double value = 0;
    detail::check(try_moe_loss_z(value, experts, logits, coefficient, gradient, mask));
    return value;
}
inline void moe_update_bias(span<const std::int64_t> counts, float rate, span<float> selection_bias) {
    detail::check(try_moe_update_bias(counts, rate, selection_bias));
}
inline void moe_route_backward(const ffn_moe_router_options_t &options, span<const float> logits, const ffn_moe_routing_t &routing,
                               const ffn_moe_route_gradients_t &gradients, span<const float> expert_scale = {}, context *in = nullptr) {
    detail::check(try_moe_route_backward(options, logits, routing, gradients, expert_scale, in));
}
inline void moe_logits_backward(const ffn_moe_logits_options_t &options, span<const float> x, const ffn_moe_logits_gradients_t &gradients,
                                context *in = nullptr) {
    detail::check(try_moe_logits_backward(options, x, gradients, in));
}
inline void moe_sparse_mixer_backward(float jitter_eps, span<const float> logits, const ffn_moe_routing_t &routing,
                                      const ffn_moe_route_gradients_t &gradients, context *in = nullptr) {
    detail::check(try_moe_sparse_mixer_backward(jitter_eps, logits, routing, gradients, in));
}
#endif

} // namespace ffn

#endif
