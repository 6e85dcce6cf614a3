// SPDX-License-Identifier: MIT
//
// ffn_io.hpp: a layer of a model file is the one made by hand; both forms, moving, failures.
#include <doctest/doctest.h>

#include <ffn/ffn_io.hpp>

#include "case.hpp"
#include "memory.hpp"

#include <cstdio>
#include <cstring>
#include <unistd.h>

static_assert(std::is_nothrow_move_constructible_v<ffn::model> && !std::is_copy_constructible_v<ffn::model>);

namespace {

// A file that is removed again: the feed-forward layer of a LLaMA.
struct checkpoint {
    std::vector<float> up = numbers(11, d_ff * d_model), gate = numbers(12, d_ff * d_model), down = numbers(13, d_ff * d_model), norm = numbers(14, d_model);
    char path[64] = "/tmp/libffn-cpp-XXXXXX.safetensors";

    checkpoint() {
        const struct {
            const char *name;
            std::string shape;
            const std::vector<float> &data;
        } parts[] = {{"mlp.up_proj", "[40,24]", up}, {"mlp.gate_proj", "[40,24]", gate}, {"mlp.down_proj", "[24,40]", down}, {"post_attention_layernorm", "[24]", norm}};
        std::string header, data;
        for (const auto &part : parts) {
            const std::size_t first = data.size(), size = part.data.size() * sizeof(float);
            data.append(reinterpret_cast<const char *>(part.data.data()), size);
            header.append(first ? "," : "{").append("\"model.layers.0.").append(part.name).append(".weight\":{\"dtype\":\"F32\",\"shape\":");
            header.append(part.shape).append(",\"data_offsets\":[").append(std::to_string(first)).append(",").append(std::to_string(first + size)).append("]}");
        }
        header += "}";
        const std::uint64_t length = header.size();
        const int file = mkstemps(path, static_cast<int>(std::strlen(".safetensors")));
        REQUIRE(file >= 0);
        const std::string whole = std::string(reinterpret_cast<const char *>(&length), sizeof length) + header + data;
        CHECK(write(file, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size()));
        close(file);
    }
    ~checkpoint() { unlink(path); }
    checkpoint(const checkpoint &) = delete;
    checkpoint &operator=(const checkpoint &) = delete;

    ffn::model_options options() const {
        ffn::model_options made;
        made.family = "llama";
        return made;
    }

    ffn::layer by_hand() const {
        ffn::layer_options made;
        made.activation = FFN_ACTIVATION_SILU;
        made.residual = FFN_RESIDUAL_INPUT;
        made.norm[FFN_NORM_IN] = FFN_NORM_RMS;
        made.norm_eps[FFN_NORM_IN] = 1e-6f;
        const ffn_tensor_t tensors[] = {
            ffn::tensor_at(FFN_ROLE_UP_WEIGHT, up.data(), {d_ff, d_model}), ffn::tensor_at(FFN_ROLE_GATE_WEIGHT, gate.data(), {d_ff, d_model}),
            ffn::tensor_at(FFN_ROLE_DOWN_WEIGHT, down.data(), {d_model, d_ff}), ffn::tensor_at(FFN_ROLE_NORM_IN_WEIGHT, norm.data(), {d_model})};
        ffn::layer layer;
        CHECK(layer.try_create(made, tensors) == FFN_OK);
        return layer;
    }
};

std::vector<float> run(const ffn::layer &layer) {
    std::vector<float> y(tokens * d_model);
    CHECK(layer.try_forward(numbers(15, tokens * d_model), y) == FFN_OK);
    return y;
}

} // namespace

TEST_CASE("a model's layer is the one made by hand") {
    const checkpoint file;
    const std::vector<float> expected = run(file.by_hand());
    ffn::model opened;
    REQUIRE(opened.try_open(file.path, file.options()) == FFN_OK);
    ffn::model model(std::move(opened));
    CHECK_FALSE(opened); // NOLINT: that is what is tested

    ffn_model_info_t info = {};
    CHECK(model.try_info(info) == FFN_OK);
    CHECK(info.layer_count == 1);
    const ffn_model_layer_t *found = nullptr;
    REQUIRE(model.try_describe(found, 0) == FFN_OK);
    CHECK(found->family == std::string("llama"));
    ffn_model_layer_t changed = *found;
    changed.flags |= FFN_MODEL_BRANCH;
    ffn::layer layer, branch;
    CHECK(model.try_create(layer, 0) == FFN_OK);
    CHECK(run(layer) == expected);
    CHECK(model.try_create(branch, changed) == FFN_OK);
    CHECK(run(branch) != expected);

    std::int64_t index = -1;
    std::vector<float> up(d_ff * d_model);
    CHECK(model.try_find(index, "model.layers.0.mlp.up_proj.weight") == FFN_OK);
    CHECK(model.try_read(index, up) == FFN_OK);
    CHECK(up == file.up);
}

TEST_CASE("faults of files have statuses of their own") {
    const checkpoint file;
    ffn::model model;
    CHECK(model.try_open("/nowhere/model.safetensors") == FFN_FILE);
    CHECK(says("/nowhere/model.safetensors"));
    CHECK_FALSE(model);
    REQUIRE(model.try_open(file.path, file.options()) == FFN_OK);
    std::int64_t index = 0;
    CHECK(model.try_find(index, "up") == FFN_UNKNOWN);
    ffn::layer layer;
    CHECK(model.try_create(layer, 1) == FFN_INVALID);
    CHECK_FALSE(layer);
    float short_by_far[3] = {7, 7, 7};
    CHECK(model.try_read(0, short_by_far) == FFN_INVALID);
    CHECK(says("out has 3 numbers"));
    CHECK(short_by_far[0] == 7);
    REQUIRE(truncate(file.path, 100) == 0);
    CHECK(model.try_open(file.path, file.options()) == FFN_FORMAT);
    CHECK(model); // what was open stays
}

TEST_CASE("every allocation of models may fail") {
    const checkpoint file;
    const std::vector<float> expected = run(file.by_hand());
    ffn::model model;
    ffn::layer layer;
    CHECK(each_fails([&] { return model.try_open(file.path, file.options()); }) >= 2);
    CHECK(each_fails([&] { return model.try_create(layer, 0); }) >= 1);
    CHECK(run(layer) == expected);
}

#if defined(__cpp_exceptions)
TEST_CASE("the throwing form of models does the same") {
    const checkpoint file;
    const ffn::model model(file.path, file.options());
    CHECK(run(model.create(0)) == run(file.by_hand()));
    CHECK(run(model.create(model.describe(0))) == run(file.by_hand()));
    std::vector<float> up(d_ff * d_model);
    model.read(model.find("model.layers.0.mlp.up_proj.weight"), up);
    CHECK(up == file.up);
    CHECK(model.info().tensor_count == 4);
    CHECK(model.tensor(0).dtype == std::string("F32"));
    CHECK_THROWS_AS(ffn::model("/nowhere"), ffn::error);
    CHECK_THROWS_AS(model.find("up"), ffn::error);
    CHECK_THROWS_AS(model.create(7), ffn::error);
}
#endif
