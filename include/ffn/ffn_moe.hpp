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
 *     ffn::moe_run told(tokens, 8, 2, ids, weights);                    where a layer's own router sends its tokens
 *     ffn::run_options run;
 *     run.moe = &told;
 *     layer.forward(x, y, run);
 *
 * Arrays that may be absent are empty spans. ffn_moe_training.hpp has noise, losses and backward passes.
 */
#ifndef FFN_FFN_MOE_HPP
#define FFN_FFN_MOE_HPP

#include <ffn/ffn.hpp>

namespace ffn {

using moe_options = detail::sized<ffn_moe_options_t>;
using moe_router_options = detail::sized<ffn_moe_router_options_t>;
using moe_second_options = detail::sized<ffn_moe_second_options_t>;
using moe_capacity_options = detail::sized<ffn_moe_capacity_options_t>;
using moe_logits_options = detail::sized<ffn_moe_logits_options_t>;

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
        mask = detail::or_null(of_mask);
        return FFN_OK;
    }

#if FFN_EXCEPTIONS
    moe_routing(std::int64_t of_experts, std::int64_t of_top_k, span<std::int32_t> of_ids, span<float> of_weights,
                span<const std::uint8_t> of_mask = {}) {
        detail::check(try_assign(of_experts, of_top_k, of_ids, of_weights, of_mask));
    }
#endif
};

/* What is particular to a run of a mixture: what try_assign gives arrays for is written. routing, mask, stream, first_token and statistics are fields, as
 * in C. */
class moe_run : public detail::sized<ffn_moe_run_t> {
public:
    moe_run() noexcept = default;

    /* For runs of so many tokens, of a layer of so many experts (identity experts included), with as many choices as the routing has, if the run brings
     * one: ids and weights [tokens, top_k], logits and scores [tokens, experts], counts [experts]. */
    ffn_status_t try_assign(std::int64_t of_tokens, std::int64_t of_experts, std::int64_t of_top_k, span<std::int32_t> of_ids, span<float> of_weights = {},
                            span<float> of_logits = {}, span<float> of_scores = {}, span<std::int64_t> of_counts = {}) noexcept {
        ffn_status_t status = detail::sized_as("ids", of_ids.size(), of_tokens, of_top_k, true);
        if (status == FFN_OK) status = detail::sized_as("weights", of_weights.size(), of_tokens, of_top_k, true);
        if (status == FFN_OK) status = detail::sized_as("logits", of_logits.size(), of_tokens, of_experts, true);
        if (status == FFN_OK) status = detail::sized_as("scores", of_scores.size(), of_tokens, of_experts, true);
        if (status == FFN_OK) status = detail::sized_as("counts", of_counts.size(), 1, of_experts, true);
        if (status != FFN_OK) return status;
        ids = detail::or_null(of_ids);
        weights = detail::or_null(of_weights);
        logits = detail::or_null(of_logits);
        scores = detail::or_null(of_scores);
        counts = detail::or_null(of_counts);
        return FFN_OK;
    }

#if FFN_EXCEPTIONS
    moe_run(std::int64_t of_tokens, std::int64_t of_experts, std::int64_t of_top_k, span<std::int32_t> of_ids, span<float> of_weights = {},
            span<float> of_logits = {}, span<float> of_scores = {}, span<std::int64_t> of_counts = {}) {
        detail::check(try_assign(of_tokens, of_experts, of_top_k, of_ids, of_weights, of_logits, of_scores, of_counts));
    }
#endif
};

namespace detail {

/* How many groups of so many tokens there are; 0 tokens each: one. */
inline std::int64_t groups_of(std::int64_t tokens, std::int64_t group_tokens) noexcept {
    return group_tokens > 0 ? tokens / group_tokens + (tokens % group_tokens != 0) : 1;
}

} // namespace detail

/* logits [tokens, experts] = weight norm(x) + bias, for x [tokens, d_model]. The pointers in the options are the caller's word. */
inline ffn_status_t try_moe_logits(const ffn_moe_logits_options_t &options, span<const float> x, span<float> logits, context *in = nullptr) noexcept {
    const std::int64_t tokens = detail::rows_of(x.size(), options.d_model);
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

/* SparseMixer, of PhiMoE (arXiv 2409.12136), where top_k is 2: writes ids and weights. jitter_eps is 0.01 there, at inference too. */
inline ffn_status_t try_moe_sparse_mixer(float jitter_eps, span<const float> logits, const ffn_moe_routing_t &routing, context *in = nullptr) noexcept {
    ffn_status_t status = detail::sized_as("logits", logits.size(), routing.tokens, routing.experts);
    if (status != FFN_OK) return status;
    return detail::told(ffn_moe_sparse_mixer(detail::handle_of(in), jitter_eps, logits.data(), &routing));
}

/* Hash routing (arXiv 2106.04426): the ids of a token are the row of its id, one of token_ids [tokens], in a table [vocabulary, top_k]. try_moe_route with
 * FFN_MOE_GIVEN_IDS then makes the weights. */
inline ffn_status_t try_moe_hash(span<const std::int64_t> token_ids, span<const std::int32_t> table, const ffn_moe_routing_t &routing) noexcept {
    const std::int64_t vocabulary = detail::rows_of(table.size(), routing.top_k);
    ffn_status_t status = detail::sized_as("token_ids", token_ids.size(), routing.tokens, 1);
    if (status == FFN_OK) status = detail::sized_as("table", table.size(), vocabulary, routing.top_k);
    return status == FFN_OK ? detail::told(ffn_moe_hash(token_ids.data(), vocabulary, table.data(), &routing)) : status;
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
    ffn_status_t status = detail::sized_as("counts", counts.size(), detail::groups_of(routing.tokens, group_tokens), routing.experts);
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

#if FFN_EXCEPTIONS
inline void moe_logits(const ffn_moe_logits_options_t &options, span<const float> x, span<float> logits, context *in = nullptr) {
    detail::check(try_moe_logits(options, x, logits, in));
}
inline void moe_route(const ffn_moe_router_options_t &options, span<const float> logits, const ffn_moe_routing_t &routing, span<float> scores = {},
                      span<const float> selection_bias = {}, span<const float> expert_scale = {}, context *in = nullptr) {
    detail::check(try_moe_route(options, logits, routing, scores, selection_bias, expert_scale, in));
}
inline void moe_sparse_mixer(float jitter_eps, span<const float> logits, const ffn_moe_routing_t &routing, context *in = nullptr) {
    detail::check(try_moe_sparse_mixer(jitter_eps, logits, routing, in));
}
inline void moe_hash(span<const std::int64_t> token_ids, span<const std::int32_t> table, const ffn_moe_routing_t &routing) {
    detail::check(try_moe_hash(token_ids, table, routing));
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
#endif

} // namespace ffn

#endif
