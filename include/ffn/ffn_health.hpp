/* SPDX-License-Identifier: MIT
 *
 * Whether training is healthy, for C++17 and newer, by the rules of ffn.hpp: what hidden units do, and the numbers of tensors.
 *
 *     ffn::stats stats(d_ff);
 *     ffn::run_options options;
 *     options.stats = stats.get();
 *     layer.forward(x, y, options);                                     or record; as often as you like
 *     stats.info().dead_units;
 *
 *     ffn::tensor_health(ffn::tensor(FFN_ROLE_UP_WEIGHT, d_up, {d_ff, d_model})).norm;
 */
#ifndef FFN_FFN_HEALTH_HPP
#define FFN_FFN_HEALTH_HPP

#include <ffn/ffn.hpp>

namespace ffn {

using stats_options = detail::sized<ffn_stats_options_t>;

/* Counts what the hidden units of layers with so many do, in the runs that it is given to: layers, convolutional ones, and mixtures by options.experts
 * and options.d_shared. One call at a time. */
class stats : public detail::owner<ffn_stats_t, ffn_stats_free> {
public:
    stats() noexcept = default;
    explicit stats(ffn_stats_t *handle) noexcept { adopt(handle); }

    ffn_status_t try_create(const ffn_stats_options_t &options) noexcept {
        ffn_stats_t *made = nullptr;
        ffn_status_t status = detail::told(ffn_stats_create(&options, &made));
        if (status == FFN_OK) adopt(made);
        return status;
    }

    /* Back to having counted nothing. */
    ffn_status_t try_reset() noexcept { return detail::told(ffn_stats_reset(get())); }

    /* Adds what another of the same shape has counted. */
    ffn_status_t try_merge(const stats &from) noexcept { return detail::told(ffn_stats_merge(get(), from.get())); }

    ffn_status_t try_info(ffn_stats_info_t &info) const noexcept {
        info.struct_size = sizeof info;
        return detail::told(ffn_stats_info(get(), &info));
    }

    /* Unit by unit, [info.units] each; empty: not wanted. */
    ffn_status_t try_units(span<std::int64_t> positive, span<double> density = {}, span<double> density_logit = {}) const noexcept {
        ffn_status_t status = detail::sized_as("positive", positive.size(), 1, units_, true);
        if (status == FFN_OK) status = detail::sized_as("density", density.size(), 1, units_, true);
        if (status == FFN_OK) status = detail::sized_as("density_logit", density_logit.size(), 1, units_, true);
        if (status != FFN_OK) return status;
        return detail::told(ffn_stats_units(get(), detail::or_null(positive), detail::or_null(density), detail::or_null(density_logit)));
    }

    /* Expert by expert, the shared ones behind them, [networks] each: of a layer without experts one; empty: not wanted. */
    ffn_status_t try_experts(span<std::int64_t> positions, span<double> density = {}, span<std::int64_t> dead_units = {}) const noexcept {
        ffn_status_t status = detail::sized_as("positions", positions.size(), 1, networks_, true);
        if (status == FFN_OK) status = detail::sized_as("density", density.size(), 1, networks_, true);
        if (status == FFN_OK) status = detail::sized_as("dead_units", dead_units.size(), 1, networks_, true);
        if (status != FFN_OK) return status;
        return detail::told(ffn_stats_experts(get(), detail::or_null(positions), detail::or_null(density), detail::or_null(dead_units)));
    }

    /* The histogram of hidden_density_logit: as many bins as counts has, of equal width over its whole range, or between ascending edges, one more. */
    ffn_status_t try_histogram(span<std::int64_t> counts, span<const double> edges = {}) const noexcept {
        const auto bins = static_cast<std::int64_t>(counts.size());
        ffn_status_t status = detail::sized_as("edges", edges.size(), 1, bins + 1, true);
        return status == FFN_OK ? detail::told(ffn_stats_histogram(get(), bins, detail::or_null(edges), counts.data())) : status;
    }

#if FFN_EXCEPTIONS
    explicit stats(const ffn_stats_options_t &options) { detail::check(try_create(options)); }
    explicit stats(std::int64_t units) { /* d_ff */
        stats_options options;
        options.d_ff = units;
        detail::check(try_create(options));
    }
    void reset() { detail::check(try_reset()); }
    void merge(const stats &from) { detail::check(try_merge(from)); }
    ffn_stats_info_t info() const {
        ffn_stats_info_t info = {};
        detail::check(try_info(info));
        return info;
    }
    void units(span<std::int64_t> positive, span<double> density = {}, span<double> density_logit = {}) const {
        detail::check(try_units(positive, density, density_logit));
    }
    void experts(span<std::int64_t> positions, span<double> density = {}, span<std::int64_t> dead_units = {}) const {
        detail::check(try_experts(positions, density, dead_units));
    }
    void histogram(span<std::int64_t> counts, span<const double> edges = {}) const { detail::check(try_histogram(counts, edges)); }
#endif

    /* Takes over a handle; the one that was there is freed. */
    void adopt(ffn_stats_t *handle) noexcept {
        ffn_stats_info_t info = {};
        owner::reset(handle);
        const bool known = handle && try_info(info) == FFN_OK;
        units_ = known ? info.units : 0;
        networks_ = known ? (info.experts > 0 ? info.experts : 1) + (info.d_shared > 0 ? 1 : 0) : 0;
    }

private:
    std::int64_t units_ = 0, networks_ = 0;
};

/* The numbers of a tensor - a weight, a gradient, an update - of any role and strides: try_tensor, tensor_at. */
inline ffn_status_t try_tensor_health(ffn_tensor_health_t &health, const ffn_tensor_t &tensor, context *in = nullptr) noexcept {
    health.struct_size = sizeof health;
    return detail::told(ffn_tensor_health(detail::handle_of(in), &tensor, &health));
}

/* norm(after - before) / norm(before): how far a step moved a tensor. */
inline ffn_status_t try_update_ratio(double &ratio, const ffn_tensor_t &before, const ffn_tensor_t &after, context *in = nullptr) noexcept {
    return detail::told(ffn_update_ratio(detail::handle_of(in), &before, &after, &ratio));
}

#if FFN_EXCEPTIONS
inline ffn_tensor_health_t tensor_health(const ffn_tensor_t &tensor, context *in = nullptr) {
    ffn_tensor_health_t health = {};
    detail::check(try_tensor_health(health, tensor, in));
    return health;
}
inline double update_ratio(const ffn_tensor_t &before, const ffn_tensor_t &after, context *in = nullptr) {
    double ratio = 0;
    detail::check(try_update_ratio(ratio, before, after, in));
    return ratio;
}
#endif

} // namespace ffn

#endif
