// SPDX-License-Identifier: MIT
//
// Training mixtures through ffn_moe_training.hpp: gradients of a task's loss and of the routers' losses against differences of the formula in float64,
// noise, the other ways to choose, and what is refused.
#include <doctest/doctest.h>

#include "case.hpp"

#include <ffn/ffn_moe_training.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace {

constexpr std::size_t experts = 4, top_k = 2, hidden = 6, width = 5;
constexpr double balance_coefficient = 0.5, z_coefficient = 0.25;

double wide(float number) { return static_cast<double>(number); }

struct mixture_case {
    std::vector<float> x = numbers(51, tokens * width), router = numbers(52, experts * width), up = numbers(53, experts * hidden * width),
                       down = numbers(54, experts * width * hidden), d_y = numbers(55, tokens * width);
    ffn::moe_router_options normalised;
    ffn::moe_options mixture;
    ffn::layer_options options;
    ffn::layer layer;

    mixture_case() {
        ffn_tensor_t tensors[3];
        REQUIRE(ffn::try_tensor(tensors[0], FFN_ROLE_UP_WEIGHT, up, {experts, hidden, width}) == FFN_OK);
        REQUIRE(ffn::try_tensor(tensors[1], FFN_ROLE_DOWN_WEIGHT, down, {experts, width, hidden}) == FFN_OK);
        REQUIRE(ffn::try_tensor(tensors[2], FFN_ROLE_ROUTER_WEIGHT, router, {experts, width}) == FFN_OK);
        normalised.normalise = FFN_MOE_NORMALISE_SUM;
        mixture.top_k = top_k;
        mixture.router = &normalised;
        options.flags = FFN_LAYER_TRAINABLE;
        options.activation = FFN_ACTIVATION_RELU;
        options.residual = FFN_RESIDUAL_INPUT;
        options.moe = &mixture;
        REQUIRE(layer.try_create(options, tensors) == FFN_OK);
    }

    // One of an expert's outputs for a token.
    double expert(std::size_t e, std::size_t t, std::size_t i) const {
        double sum = 0;
        for (std::size_t f = 0; f < hidden; f++) {
            double h = 0;
            for (std::size_t j = 0; j < width; j++) h += wide(up[(e * hidden + f) * width + j]) * wide(x[t * width + j]);
            sum += wide(down[(e * width + i) * hidden + f]) * std::fmax(h, 0);
        }
        return sum;
    }

    // The sum of d_y * y, Switch's loss and the z-loss, for choices and counts that do not move.
    double loss(const std::vector<std::int32_t> &ids, const std::vector<std::int64_t> &counts) const {
        double sum = 0;
        for (std::size_t t = 0; t < tokens; t++) {
            std::array<double, experts> powers;
            double total = 0, chosen = 0;
            for (std::size_t e = 0; e < experts; e++) {
                double z = 0;
                for (std::size_t j = 0; j < width; j++) z += wide(router[e * width + j]) * wide(x[t * width + j]);
                total += powers[e] = std::exp(z);
            }
            sum += z_coefficient * std::pow(std::log(total), 2) / tokens;
            for (std::size_t e = 0; e < experts; e++)
                sum += balance_coefficient * experts * static_cast<double>(counts[e]) / tokens * powers[e] / total / tokens;
            for (std::size_t k = 0; k < top_k; k++) chosen += powers[static_cast<std::size_t>(ids[t * top_k + k])];
            for (std::size_t i = 0; i < width; i++) {
                double y = wide(x[t * width + i]);
                for (std::size_t k = 0; k < top_k; k++) {
                    const auto e = static_cast<std::size_t>(ids[t * top_k + k]);
                    y += powers[e] / chosen * expert(e, t, i);
                }
                sum += wide(d_y[t * width + i]) * y;
            }
        }
        return sum;
    }

    // Whether an array of the case has that gradient.
    bool is_gradient(const std::vector<float> &gradient, std::vector<float> &of, const std::vector<std::int32_t> &ids,
                     const std::vector<std::int64_t> &counts) {
        for (std::size_t i = 0; i < of.size(); i++) {
            const float was = of[i], low = was - 1.0f / 65536, high = was + 1.0f / 65536;
            of[i] = high;
            const double above = loss(ids, counts);
            of[i] = low;
            const double below = loss(ids, counts);
            of[i] = was;
            if (!(std::fabs(wide(gradient[i]) - (above - below) / (wide(high) - wide(low))) <= 2e-5)) return false;
        }
        return gradient.size() == of.size();
    }
};

} // namespace

TEST_CASE("gradients of the task and of the losses come together") {
    mixture_case made;
    ffn::tape tape;
    REQUIRE(tape.try_create() == FFN_OK);
    std::vector<std::int32_t> ids(tokens * top_k);
    std::vector<std::int64_t> counts(experts);
    std::vector<float> y(tokens * width), logits(tokens * experts), scores(tokens * experts), d_logits(tokens * experts), d_scores(tokens * experts);
    ffn::moe_run told;
    REQUIRE(told.try_assign(tokens, experts, top_k, ids, {}, logits, scores, counts) == FFN_OK);
    ffn::run_options run;
    run.moe = &told;
    REQUIRE(made.layer.try_record(tape, made.x, y, run) == FFN_OK);

    ffn::moe_balance balance;
    balance.coefficient = balance_coefficient;
    REQUIRE(balance.try_assign(experts, top_k, scores, counts, d_scores) == FFN_OK);
    double value = 0, z_value = 0, task = 0;
    CHECK(ffn::try_moe_loss(value, ffn_moe_loss_switch, balance) == FFN_OK);
    CHECK(ffn::try_moe_loss_z(z_value, experts, logits, z_coefficient, d_logits) == FFN_OK);
    for (std::size_t i = 0; i < y.size(); i++) task += wide(y[i]) * wide(made.d_y[i]);
    CHECK(std::fabs(value + z_value + task - made.loss(ids, counts)) <= 1e-5);

    std::vector<float> d_x(made.x.size()), d_router(made.router.size()), d_up(made.up.size()), d_down(made.down.size()), d_weights(tokens * top_k);
    ffn_tensor_t gradients[3];
    REQUIRE(ffn::try_gradient(gradients[0], FFN_ROLE_ROUTER_WEIGHT, d_router, {experts, width}) == FFN_OK);
    REQUIRE(ffn::try_gradient(gradients[1], FFN_ROLE_UP_WEIGHT, d_up, {experts, hidden, width}) == FFN_OK);
    REQUIRE(ffn::try_gradient(gradients[2], FFN_ROLE_DOWN_WEIGHT, d_down, {experts, width, hidden}) == FFN_OK);
    ffn::moe_backward losses;
    REQUIRE(losses.try_assign(tokens, experts, top_k, d_logits, d_scores, d_weights) == FFN_OK);
    ffn::backward_options backward;
    backward.moe = &losses;
    REQUIRE(made.layer.try_backward(tape, made.d_y, d_x, gradients, backward) == FFN_OK);
    CHECK(made.is_gradient(d_x, made.x, ids, counts));
    CHECK(made.is_gradient(d_router, made.router, ids, counts));
    CHECK(made.is_gradient(d_up, made.up, ids, counts));
    CHECK(made.is_gradient(d_down, made.down, ids, counts));
    for (std::size_t slot = 0; slot < d_weights.size(); slot++) {
        double expected = 0;
        const std::size_t t = slot / top_k;
        for (std::size_t i = 0; i < width; i++) expected += wide(made.d_y[t * width + i]) * made.expert(static_cast<std::size_t>(ids[slot]), t, i);
        CHECK(std::fabs(wide(d_weights[slot]) - expected) <= 2e-5);
    }

    std::vector<float> once = d_router, d_none;
    backward.flags = FFN_BACKWARD_ACCUMULATE;
    REQUIRE(made.layer.try_record(tape, made.x, y) == FFN_OK);
    REQUIRE(made.layer.try_backward(tape, made.d_y, d_none, ffn::span<const ffn_tensor_t>(gradients, 1), backward) == FFN_OK);
    for (std::size_t i = 0; i < once.size(); i++) CHECK(std::fabs(d_router[i] - 2 * once[i]) <= 1e-5f);
}

TEST_CASE("each load-balancing loss has its formula, and adds its gradient") {
    const std::vector<float> z = numbers(61, tokens * experts);
    std::vector<std::int32_t> ids(tokens * top_k);
    std::vector<float> weights(tokens * top_k), scores(tokens * experts);
    std::vector<std::int64_t> all(experts), first(experts);
    ffn::moe_routing routing;
    REQUIRE(routing.try_assign(experts, top_k, ids, weights) == FFN_OK);
    REQUIRE(ffn::try_moe_route(ffn::moe_router_options(), z, routing, scores) == FFN_OK);
    REQUIRE(ffn::try_moe_count(routing, all) == FFN_OK);
    REQUIRE(ffn::try_moe_count(routing, first, 0, 1) == FFN_OK);
    const struct {
        ffn_status_t (*loss)(const ffn_moe_balance_t *, double *);
        const std::vector<std::int64_t> &counts;
        double factor;
    } cases[] = {{ffn_moe_loss_switch, all, experts},
                 {ffn_moe_loss_gshard, first, experts},
                 {ffn_moe_loss_huggingface, all, experts},
                 {ffn_moe_loss_megatron, all, static_cast<double>(experts) / top_k},
                 {ffn_moe_loss_deepseek, all, static_cast<double>(experts) / top_k}};
    for (const auto &one : cases) {
        std::vector<float> gradient(tokens * experts, 1.0f);
        ffn::moe_balance balance;
        REQUIRE(balance.try_assign(experts, top_k, scores, one.counts, gradient) == FFN_OK);
        double value = 0, expected = 0;
        CHECK(ffn::try_moe_loss(value, one.loss, balance) == FFN_OK);
        for (std::size_t i = 0; i < scores.size(); i++) {
            const double slope = one.factor * static_cast<double>(one.counts[i % experts]) / tokens / tokens;
            expected += slope * wide(scores[i]);
            CHECK(std::fabs(wide(gradient[i]) - 1 - slope) <= 1e-6);
        }
        CHECK(std::fabs(value - expected) <= 1e-6);
    }
    // groups of two tokens, and padding
    std::vector<std::int64_t> grouped(3 * experts);
    REQUIRE(ffn::try_moe_count(routing, grouped, 2) == FFN_OK);
    std::vector<std::uint8_t> mask(tokens, 1);
    ffn::moe_balance balance;
    double value = 0;
    REQUIRE(balance.try_assign(experts, top_k, scores, grouped, {}, 2, mask) == FFN_OK);
    CHECK(ffn::try_moe_loss(value, ffn_moe_loss_deepseek, balance) == FFN_OK);
    double expected = 0;
    for (std::size_t t = 0; t < tokens; t++)
        for (std::size_t e = 0; e < experts; e++) {
            const double group = t / 2 == 2 ? 1 : 2;
            expected += static_cast<double>(experts) / top_k / 3 * static_cast<double>(grouped[t / 2 * experts + e]) / group * wide(scores[t * experts + e]) / group;
        }
    CHECK(std::fabs(value - expected) <= 1e-6);
}

TEST_CASE("noise stays within its size, and goes back") {
    const std::vector<float> z = numbers(62, tokens * experts), zero(tokens * experts), one(tokens * experts, 1.0f);
    std::vector<float> out(tokens * experts), part(experts), noisy = z, d_noise(tokens * experts);
    ffn::moe_noise noise;
    noise.site = FFN_MOE_SITE_LOGITS;
    CHECK(ffn::try_moe_jitter(noise, experts, z, out) == FFN_OK);
    CHECK(out == z);
    noise.size = 0.25f;
    noise.seed = 3;
    CHECK(ffn::try_moe_jitter(noise, experts, z, out) == FFN_OK);
    CHECK(out != z);
    for (std::size_t i = 0; i < z.size(); i++) CHECK(std::fabs(out[i] / z[i] - 1) <= 0.2501f);
    noise.first_row = 2;
    CHECK(ffn::try_moe_jitter(noise, experts, ffn::span<const float>(z.data() + 2 * experts, experts), part) == FFN_OK);
    CHECK(std::equal(part.begin(), part.end(), out.begin() + 2 * experts));
    noise = ffn::moe_noise();
    noise.site = FFN_MOE_SITE_NOISE;
    CHECK(ffn::try_moe_add_noise(noise, experts, noisy, zero) == FFN_OK);
    CHECK(ffn::try_moe_add_noise_backward(noise, experts, zero, one, d_noise) == FFN_OK);
    for (std::size_t i = 0; i < z.size(); i++) // softplus(0) is log 2, sigmoid(0) a half
        CHECK(std::fabs(wide(noisy[i]) - wide(z[i]) - 2 * std::log(2.0) * wide(d_noise[i])) <= 1e-5);
    noisy = z;
    noise.size = 0.5f;
    CHECK(ffn::try_moe_add_noise(noise, experts, noisy) == FFN_OK);
    for (std::size_t i = 0; i < z.size(); i++) CHECK(std::fabs(wide(noisy[i]) - wide(z[i]) - wide(d_noise[i])) <= 1e-5);
}

TEST_CASE("sparse mixer and hash routing choose by their formulas") {
    const std::vector<float> z = numbers(63, tokens * experts);
    const float jitter_eps = 0.5f;
    std::vector<std::int32_t> ids(tokens * top_k);
    std::vector<float> weights(tokens * top_k), d_weights(tokens * top_k), d_logits(tokens * experts, 7.0f);
    ffn::moe_routing routing;
    REQUIRE(routing.try_assign(experts, top_k, ids, weights) == FFN_OK);
    REQUIRE(ffn::try_moe_sparse_mixer(jitter_eps, z, routing) == FFN_OK);
    for (std::size_t t = 0; t < tokens; t++) d_weights[t * top_k] = 1;
    ffn::moe_route_gradients gradients;
    gradients.d_weights = d_weights.data();
    gradients.d_logits = d_logits.data();
    REQUIRE(ffn::try_moe_sparse_mixer_backward(jitter_eps, z, routing, gradients) == FFN_OK);
    for (std::size_t t = 0; t < tokens; t++) {
        const float *row = z.data() + t * experts;
        const auto first = static_cast<std::size_t>(std::max_element(row, row + experts) - row);
        CHECK(ids[t * top_k] == static_cast<std::int32_t>(first));
        std::array<double, experts> p = {};
        double sum = 0;
        for (std::size_t e = 0; e < experts; e++)
            if ((wide(row[first]) - wide(row[e])) / std::fmax(std::fabs(wide(row[e])), wide(row[first])) <= 2 * wide(jitter_eps))
                sum += p[e] = std::exp(wide(row[e]));
        CHECK(std::fabs(wide(weights[t * top_k]) - p[first] / sum) <= 1e-6);
        for (std::size_t e = 0; e < experts; e++)
            CHECK(std::fabs(wide(d_logits[t * experts + e]) - p[first] / sum * ((e == first) - p[e] / sum)) <= 1e-6);
    }
    // drawn: with so large an eps no expert drops out, and the first weight is p of the choice or a third of it
    ffn::moe_noise noise;
    noise.site = FFN_MOE_SITE_CHOICE;
    REQUIRE(ffn::try_moe_sparse_mixer_sample(noise, 1e6f, z, routing) == FFN_OK);
    for (std::size_t t = 0; t < tokens; t++) {
        double sum = 0;
        for (std::size_t e = 0; e < experts; e++) sum += std::exp(wide(z[t * experts + e]));
        const double p = std::exp(wide(z[t * experts + static_cast<std::size_t>(ids[t * top_k])])) / sum, weight = wide(weights[t * top_k]);
        CHECK((std::fabs(weight - p) <= 1e-6 || std::fabs(weight - p / 3) <= 1e-6));
        CHECK(ids[t * top_k] != ids[t * top_k + 1]);
    }
    const std::vector<std::int32_t> table = {1, 2, 3, 0};
    const std::vector<std::int64_t> words = {1, 0, 0, 1, 1};
    REQUIRE(ffn::try_moe_hash(words, table, routing) == FFN_OK);
    CHECK(ids == std::vector<std::int32_t>{3, 0, 1, 2, 1, 2, 3, 0, 3, 0});
}

TEST_CASE("wrong training of mixtures is refused, and nothing is written") {
    mixture_case made;
    ffn::tape tape;
    REQUIRE(tape.try_create() == FFN_OK);
    std::vector<float> y(tokens * width, 7.0f), each(tokens * experts), d_x(tokens * width, 7.0f);
    std::vector<std::int32_t> ids(tokens * top_k);
    std::vector<std::int64_t> counts(experts);
    const ffn::span<float> less(each.data(), each.size() - 1);
    ffn::moe_run told;
    CHECK(told.try_assign(tokens, experts, 3, ids) == FFN_INVALID);
    CHECK(says("ids has 10 numbers, must have 5 * 3"));
    CHECK(told.try_assign(tokens, experts, top_k, ids, ffn::span<float>(each.data(), 1)) == FFN_INVALID);
    CHECK(told.try_assign(tokens, experts, top_k, ids, {}, less) == FFN_INVALID);
    CHECK(told.try_assign(tokens, experts, top_k, ids, {}, {}, less) == FFN_INVALID);
    CHECK(told.try_assign(tokens, 3, top_k, ids, {}, {}, {}, counts) == FFN_INVALID);
    CHECK(told.ids == nullptr);
    ffn::moe_backward losses;
    CHECK(losses.try_assign(tokens, experts, top_k, less) == FFN_INVALID);
    CHECK(says("d_logits has 19 numbers, must have 5 * 4"));
    CHECK(losses.try_assign(tokens, experts, top_k, {}, less) == FFN_INVALID);
    CHECK(losses.try_assign(tokens, experts, top_k, {}, {}, less) == FFN_INVALID);
    ffn::moe_balance balance;
    double value = 0;
    CHECK(balance.try_assign(experts, top_k, less, counts) == FFN_INVALID);
    CHECK(balance.try_assign(experts, top_k, each, counts, {}, 2) == FFN_INVALID);
    CHECK(says("counts has 4 numbers, must have 3 * 4"));
    CHECK(balance.try_assign(experts, top_k, each, counts, less) == FFN_INVALID);
    CHECK(ffn::try_moe_loss_z(value, experts, less) == FFN_INVALID);
    CHECK(ffn::try_moe_loss_z(value, experts, each, 1, less) == FFN_INVALID);
    ffn::moe_noise noise;
    noise.site = FFN_MOE_SITE_NOISE;
    CHECK(ffn::try_moe_jitter(noise, experts, each, less) == FFN_INVALID);
    CHECK(ffn::try_moe_jitter(noise, experts, each, each) == FFN_INVALID); // the site
    CHECK(ffn::try_moe_add_noise(noise, 3, each) == FFN_INVALID);
    CHECK(ffn::try_moe_add_noise(noise, experts, each, less) == FFN_INVALID);
    CHECK(ffn::try_moe_add_noise_backward(noise, experts, each, less, each) == FFN_INVALID);
    std::vector<float> weights(tokens * top_k);
    ffn::moe_routing routing;
    REQUIRE(routing.try_assign(experts, top_k, ids, weights) == FFN_OK);
    CHECK(ffn::try_moe_sparse_mixer(0.01f, less, routing) == FFN_INVALID);
    CHECK(ffn::try_moe_sparse_mixer_sample(noise, 0.01f, less, routing) == FFN_INVALID);
    CHECK(ffn::try_moe_sparse_mixer_sample(noise, 0.01f, each, routing) == FFN_INVALID);
    CHECK(says("site"));
    CHECK(ffn::try_moe_sparse_mixer_backward(0.01f, less, routing, ffn::moe_route_gradients()) == FFN_INVALID);
    CHECK(ffn::try_moe_hash(counts, std::vector<std::int32_t>{1, 2}, routing) == FFN_INVALID);
    CHECK(says("token_ids has 4 numbers, must have 5 * 1"));
    CHECK(ffn::try_moe_hash(std::vector<std::int64_t>(tokens), std::vector<std::int32_t>{1, 2, 3}, routing) == FFN_INVALID);

    ffn::run_options run;
    run.batch = 2;
    CHECK(made.layer.try_record(tape, made.x, y, run) == FFN_INVALID);
    CHECK(says("x has 5 rows: not those of 2 sequences"));
    run.batch = -1;
    CHECK(made.layer.try_forward(made.x, y, run) == FFN_INVALID);
    CHECK(made.layer.try_forward(made.x, ffn::span<float>(y.data(), 1), ffn::run_options()) == FFN_INVALID);
    CHECK(y == std::vector<float>(tokens * width, 7.0f));
    run.batch = 5;
    REQUIRE(made.layer.try_record(tape, made.x, y, run) == FFN_OK);
    losses.flags = 1;
    ffn::backward_options backward;
    backward.moe = &losses;
    CHECK(made.layer.try_backward(tape, made.d_y, d_x, {}, backward) == FFN_INVALID);
    CHECK(says("flags of the mixture's backward pass"));
    CHECK(d_x == std::vector<float>(tokens * width, 7.0f));
    losses.flags = 0;
    CHECK(made.layer.try_backward(tape, made.d_y, d_x, {}, backward) == FFN_OK);
}

#if defined(__cpp_exceptions)
TEST_CASE("the throwing forms train mixtures likewise") {
    mixture_case made;
    ffn::tape tape{ffn::tape_options()};
    std::vector<float> y(tokens * width), same(tokens * width), scores(tokens * experts), logits(tokens * experts), d_scores(tokens * experts),
        d_logits(tokens * experts), d_x(tokens * width), d_router(experts * width);
    std::vector<std::int64_t> counts(experts);
    const ffn::moe_run told(tokens, experts, top_k, {}, {}, logits, scores, counts);
    ffn::run_options run;
    run.moe = &told;
    made.layer.forward(made.x, same, run);
    made.layer.record(tape, made.x, y, run);
    CHECK(y == same);
    const ffn::moe_balance balance(experts, top_k, scores, counts, d_scores);
    CHECK(ffn::moe_loss(ffn_moe_loss_megatron, balance) > 0);
    CHECK(ffn::moe_loss_z(experts, logits, 0.5, d_logits) > 0);
    const ffn::moe_backward losses(tokens, experts, top_k, d_logits, d_scores);
    ffn::backward_options backward;
    backward.moe = &losses;
    made.layer.backward(tape, made.d_y, d_x, {ffn::gradient(FFN_ROLE_ROUTER_WEIGHT, d_router, {experts, width})}, backward);
    CHECK(d_router[0] != 0.0f);
    CHECK_THROWS_AS(made.layer.backward(tape, made.d_y, d_x, ffn::span<const ffn_tensor_t>(), backward), ffn::error);
    CHECK_THROWS_AS(ffn::moe_run(tokens, experts, 3, {}, y), ffn::error);
    CHECK_THROWS_AS(ffn::moe_backward(tokens, 3, top_k, d_logits), ffn::error);
    CHECK_THROWS_AS(ffn::moe_balance(3, top_k, scores, counts), ffn::error);
    CHECK_THROWS_AS(ffn::moe_loss_z(3, logits), ffn::error);
    const ffn::moe_noise none;
    CHECK_THROWS_AS(ffn::moe_jitter(none, experts, logits, logits), ffn::error);
    CHECK_THROWS_AS(ffn::moe_add_noise(none, experts, logits), ffn::error);
    CHECK_THROWS_AS(ffn::moe_add_noise_backward(none, experts, logits, logits, d_logits), ffn::error);
    std::vector<std::int32_t> ids(tokens * top_k);
    std::vector<float> weights(tokens * top_k);
    const ffn::moe_routing routing(experts, top_k, ids, weights);
    ffn::moe_sparse_mixer(0.01f, logits, routing);
    CHECK_THROWS_AS(ffn::moe_sparse_mixer_sample(none, 0.01f, logits, routing), ffn::error);
    CHECK_THROWS_AS(ffn::moe_sparse_mixer_backward(0.01f, logits, routing, ffn::moe_route_gradients()), ffn::error);
    ffn::moe_hash(std::vector<std::int64_t>(tokens), std::vector<std::int32_t>{2, 3}, routing);
    CHECK(ids[0] == 2);
}
#endif
