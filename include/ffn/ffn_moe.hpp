/* SPDX-License-Identifier: MIT
 *
 * Mixtures of experts for C++17 and newer, by the rules of ffn.hpp: the ffn_moe_* functions of ffn.h over arrays that know their length.
 *
 *     ffn::moe_options mixture;
 *     mixture.top_k = 2;
 *     options.moe = &mixture;                                           of a layer_options, whose experts are stacks of tensors
 *
 *     ffn::moe_routing routing(8, 2, ids, weights);                     8 experts, 2 of each token
 *     ffn::moe_route(ffn::moe_router_options(), logits, routing);
 *
 * Arrays that may be absent are empty spans. What has no function here (jitter and noise, sparse mixer, hash routing, the
 * z-loss, ffn_moe_backward_t) is used as in C.
 */
#ifndef FFN_FFN_MOE_HPP
#define FFN_FFN_MOE_HPP

#include <ffn/ffn.hpp>

namespace ffn {

using moe_options = detail::sized<ffn_moe_options_t>;
using moe_run = detail::sized<ffn_moe_run_t>;
using moe_router_options = detail::sized<ffn_moe_router_options_t>;
using moe_second_options = detail::sized<ffn_moe_second_options_t>;
using moe_capacity_options = detail::sized<ffn_moe_capacity_options_t>;
using moe_logits_options = detail::sized<ffn_moe_logits_options_t>;
using moe_balance = detail::sized<ffn_moe_balance_t>;
using moe_noise = detail::sized<ffn_moe_noise_t>;
using moe_route_gradients = detail::sized<ffn_moe_route_gradients_t>;
using moe_logits_gradients = detail::sized<ffn_moe_logits_gradients_t>;

/* Which experts each token goes to, and with which weights: a view of arrays [tokens, top_k] of the caller's. As a ffn_moe_routing_t it goes to every
 * function of ffn.h, and into ffn_moe_run_t. */
class moe_routing : public detail::sized<ffn_moe_routing_t> {
public:
    moe_routing() noexcept = default;

    ffn_status_t try_assign(std::int64_t of_experts, std::int64_t of_top_k, span<std::int32_t> of_ids, span<float> of_weights,
                            span<const std::uint8_t> of_mask = {}) noexcept {
        const std::size_t width = of_top_k > 0 ? static_cast<std::size_t>(of_top_k) : 0;
        if (!width || of_ids.size() % width || of_ids.size() != of_weights.size() || (!of_mask.empty() && of_mask.size() != of_ids.size() / width))
            return detail::fail(FFN_INVALID, "there are %zu ids, %zu weights and a mask of %zu, must be tokens * %lld (top_k), twice, and tokens (or 0)",
                                of_ids.size(), of_weights.size(), of_mask.size(), static_cast<long long>(of_top_k));
        tokens = static_cast<std::int64_t>(of_ids.size() / width);
        experts = of_experts;
        top_k = of_top_k;
        ids = of_ids.data();
        weights = of_weights.data();
        mask = of_mask.empty() ? nullptr : of_mask.data();
        return FFN_OK;
    }

#if FFN_EXCEPTIONS
    moe_routing(std::int64_t of_experts, std::int64_t of_top_k, span<std::int32_t> of_ids, span<float> of_weights,
                span<const std::uint8_t> of_mask = {}) {
        detail::check(try_assign(of_experts, of_top_k, of_ids, of_weights, of_mask));
    }
#endif
};

namespace detail {

/* Whether an array has rows * width elements, or may be empty and is. */
inline ffn_status_t sized_as(const char *name, std::size_t size, std::int64_t rows, std::int64_t width, bool may_be_empty = false) noexcept {
    if (may_be_empty && size == 0) return FFN_OK;
    if (rows >= 0 && width >= 0 && (width == 0 ? size == 0 : size % static_cast<std::size_t>(width) == 0 &&
                                                                 size / static_cast<std::size_t>(width) == static_cast<std::size_t>(rows)))
        return FFN_OK;
    return fail(FFN_INVALID, "%s has %zu numbers, must have %lld * %lld", name, size, static_cast<long long>(rows), static_cast<long long>(width));
}

template <class T> T *or_null(span<T> array) noexcept { return array.empty() ? nullptr : array.data(); }

inline ffn_context_t *handle_of(context *in) noexcept { return in ? in->get() : nullptr; }

} // namespace detail

/* logits [tokens, experts] = weight norm(x) + bias, for x [tokens, d_model]. The pointers in the options are the caller's word. */
inline ffn_status_t try_moe_logits(const ffn_moe_logits_options_t &options, span<const float> x, span<float> logits, context *in = nullptr) noexcept {
    const std::int64_t tokens = options.d_model > 0 ? static_cast<std::int64_t>(x.size() / static_cast<std::size_t>(options.d_model)) : 0;
    ffn_status_t status = detail::sized_as("x", x.size(), tokens, options.d_model);
    if (status == FFN_OK) status = detail::sized_as("logits", logits.size(), tokens, options.experts);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_logits(detail::handle_of(in), &options, tokens, x.data(), 0, logits.data()));
}

/* Chooses experts and weighs them. scores [tokens, experts] is written; selection_bias and expert_scale are [experts]. */
inline ffn_status_t try_moe_route(const ffn_moe_router_options_t &options, span<const float> logits, const ffn_moe_routing_t &routing,
                                  span<float> scores = {}, span<const float> selection_bias = {}, span<const float> expert_scale = {},
                                  context *in = nullptr) noexcept {
    ffn_status_t status = detail::sized_as("logits", logits.size(), routing.tokens, routing.experts);
    if (status == FFN_OK) status = detail::sized_as("scores", scores.size(), routing.tokens, routing.experts, true);
    if (status == FFN_OK) status = detail::sized_as("selection_bias", selection_bias.size(), 1, routing.experts, true);
    if (status == FFN_OK) status = detail::sized_as("expert_scale", expert_scale.size(), 1, routing.experts, true);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_route(detail::handle_of(in), &options, logits.data(), detail::or_null(selection_bias), detail::or_null(expert_scale),
                                      detail::or_null(scores), &routing));
}

/* Expert choice on scores [tokens, experts]: each expert takes `capacity` tokens of each group of group_tokens (0: all). */
inline ffn_status_t try_moe_expert_choice(std::int64_t capacity, std::int64_t group_tokens, span<const float> scores, const ffn_moe_routing_t &routing,
                                          context *in = nullptr) noexcept {
    ffn_status_t status = detail::sized_as("scores", scores.size(), routing.tokens, routing.experts);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_expert_choice(detail::handle_of(in), capacity, group_tokens, scores.data(), &routing));
}

/* A policy of second choices; logits [tokens, experts] for FFN_MOE_SECOND_SAMPLED. */
inline ffn_status_t try_moe_second_expert(const ffn_moe_second_options_t &options, const ffn_moe_routing_t &routing,
                                          span<const float> logits = {}) noexcept {
    ffn_status_t status = detail::sized_as("logits", logits.size(), routing.tokens, routing.experts, true);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_second_expert(&options, detail::or_null(logits), &routing));
}

/* Limits each expert to its capacity. */
inline ffn_status_t try_moe_limit(const ffn_moe_capacity_options_t &options, const ffn_moe_routing_t &routing, context *in = nullptr) noexcept {
    return detail::told(ffn_moe_limit(detail::handle_of(in), &options, &routing));
}

/* counts [groups, experts]: tokens per expert, of groups of group_tokens (0: all are one), of whose choices the first `choices` (0: all) count. */
inline ffn_status_t try_moe_count(const ffn_moe_routing_t &routing, span<std::int64_t> counts, std::int64_t group_tokens = 0,
                                  std::int64_t choices = 0) noexcept {
    const std::int64_t groups = group_tokens > 0 ? routing.tokens / group_tokens + (routing.tokens % group_tokens != 0) : 1;
    ffn_status_t status = detail::sized_as("counts", counts.size(), groups, routing.experts);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_count(&routing, group_tokens, choices, counts.data()));
}

/* What a routing amounts to; scores [tokens, experts] for the router's entropy. */
inline ffn_status_t try_moe_statistics(ffn_moe_statistics_t &statistics, const ffn_moe_routing_t &routing, span<const float> scores = {}) noexcept {
    ffn_status_t status = detail::sized_as("scores", scores.size(), routing.tokens, routing.experts, true);
    statistics.struct_size = sizeof statistics;
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_statistics(&routing, detail::or_null(scores), &statistics));
}

/* A load-balancing loss, ffn_moe_loss_switch to ffn_moe_loss_deepseek: try_moe_loss(value, ffn_moe_loss_switch, balance). The pointers in the balance are
 * the caller's word. */
inline ffn_status_t try_moe_loss(double &value, ffn_status_t (*loss)(const ffn_moe_balance_t *, double *), const ffn_moe_balance_t &balance) noexcept {
    return detail::told(loss(&balance, &value));
}

/* selection_bias += rate * sign(mean of the counts - counts): DeepSeek-V3. */
inline ffn_status_t try_moe_update_bias(span<const std::int64_t> counts, float rate, span<float> selection_bias) noexcept {
    const std::int64_t experts = static_cast<std::int64_t>(selection_bias.size());
    ffn_status_t status = detail::sized_as("counts", counts.size(), 1, experts);
    return status == FFN_OK ? detail::told(ffn_moe_update_bias(experts, counts.data(), rate, selection_bias.data())) : status;
}

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
    const std::int64_t tokens = options.d_model > 0 ? static_cast<std::int64_t>(x.size() / static_cast<std::size_t>(options.d_model)) : 0;
    ffn_status_t status = detail::sized_as("x", x.size(), tokens, options.d_model);
    return status == FFN_OK ? detail::told(ffn_moe_logits_backward(detail::handle_of(in), &options, tokens, x.data(), 0, &gradients)) : status;
}

#if FFN_EXCEPTIONS
inline void moe_logits(const ffn_moe_logits_options_t &options, span<const float> x, span<float> logits, context *in = nullptr) {
    detail::check(try_moe_logits(options, x, logits, in));
}
inline void moe_route(const ffn_moe_router_options_t &options, span<const float> logits, const ffn_moe_routing_t &routing, span<float> scores = {},
                      span<const float> selection_bias = {}, span<const float> expert_scale = {}, context *in = nullptr) {
    detail::check(try_moe_route(options, logits, routing, scores, selection_bias, expert_scale, in));
}
inline void moe_expert_choice(std::int64_t capacity, std::int64_t group_tokens, span<const float> scores, const ffn_moe_routing_t &routing,
                              context *in = nullptr) {
    detail::check(try_moe_expert_choice(capacity, group_tokens, scores, routing, in));
}
inline void moe_second_expert(const ffn_moe_second_options_t &options, const ffn_moe_routing_t &routing, span<const float> logits = {}) {
    detail::check(try_moe_second_expert(options, routing, logits));
}
inline void moe_limit(const ffn_moe_capacity_options_t &options, const ffn_moe_routing_t &routing, context *in = nullptr) {
    detail::check(try_moe_limit(options, routing, in));
}
inline void moe_count(const ffn_moe_routing_t &routing, span<std::int64_t> counts, std::int64_t group_tokens = 0, std::int64_t choices = 0) {
    detail::check(try_moe_count(routing, counts, group_tokens, choices));
}
inline ffn_moe_statistics_t moe_statistics(const ffn_moe_routing_t &routing, span<const float> scores = {}) {
    ffn_moe_statistics_t statistics = {};
    detail::check(try_moe_statistics(statistics, routing, scores));
    return statistics;
}
inline double moe_loss(ffn_status_t (*loss)(const ffn_moe_balance_t *, double *), const ffn_moe_balance_t &balance) {
    double value = 0;
    detail::check(try_moe_loss(value, loss, balance));
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
#endif

} // namespace ffn

#endif
