/* SPDX-License-Identifier: MIT
 *
 * libffn - the position-wise feed-forward sublayer of transformers on CPUs.
 *
 *     dense   y = a * r + c * ( W_down act(W_up x + b_up) + b_down )
 *     gated   y = a * r + c * ( W_down ( act(W_gate x + b_gate) * (W_up x + b_up) ) + b_down )
 *
 * x is one token: a row of d_model numbers. The hidden width is d_ff, the output width d_out (d_model in most models). r is the residual,
 * a and c are its scale and the branch's. Every part but W_up and W_down may be absent, and a norm may stand at four places:
 *
 *     n = NORM_IN(x)                  h = NORM_MID( act(...) or act(...) * (...) )      computed from n
 *     f = NORM_BRANCH(W_down h + b_down)                                                y = NORM_OUT(a * r + c * f)
 *
 * The same layer runs a mixture of experts, with options.moe: the branch is then a weighted sum of networks of either form, chosen for each token by
 * a router, and of experts that all tokens share ("Mixture of experts: the layer" below).
 *
 * Sources: the dense layer is Vaswani et al. 2017 (arXiv 1706.03762) section 3.3; the gated one Shazeer 2020 (arXiv 2002.05202), whose GLU,
 * bilinear, ReGLU, GEGLU and SwiGLU are the activations sigmoid, identity, relu, gelu and silu here.
 *
 * THE MANUAL IN SIX RULES, for every function below
 *
 *  1. Status. Functions that can fail return ffn_status_t: 0 is success, a failure is negative. ffn_last_error() then has one sentence
 *     that names the offending value and its limit. On failure nothing else has happened: outputs are untouched, out-parameters are NULL,
 *     handles stay usable. The library never prints, never aborts, and changes no global state: not the thread counts of BLAS or OpenMP,
 *     not the floating-point environment, not the locale, no signal handler.
 *  2. Threads. A layer never changes after ffn_layer_create (but by ffn_layer_update): any number of threads may use one at once. A context (threads and scratch
 *     memory) serves one call at a time: a second call at once gets FFN_BUSY and does nothing. Wherever a context is asked for, NULL means
 *     "the calling thread alone", with scratch memory kept per thread until that thread ends.
 *  3. Strides are in BYTES, everywhere. 0 means contiguous; where a group of strides is given, all 0 means contiguous. The stride of a
 *     dimension of size 1 is ignored. Bytes, because narrow weights have no element stride, and because an element count given by mistake is
 *     then smaller than a row and is refused, rather than read past the end.
 *  4. Option structs start with struct_size = sizeof(struct). Zero in any other field means the default, unless the field is called required.
 *     A caller compiled against an older header (smaller struct) gets the defaults for the rest; one compiled against a newer header (larger
 *     struct) is accepted if the fields that this library does not know are all zero, else FFN_UNSUPPORTED.
 *  5. Numbers are float32, in the CPU's byte order, at any address that is a multiple of 4. NaN and infinity pass through as IEEE 754
 *     arithmetic has it; no argument check reads the values of x.
 *  6. Ownership. The library copies the weights; every pointer in a call is the caller's again when the call returns. The two exceptions
 *     are an allocator and a parallel-for, which must outlive the handles made with them.
 *
 * A program in ten lines (examples/c has the whole of it):
 *
 *     ffn_tensor_t tensors[2] = {
 *         {.role = FFN_ROLE_UP_WEIGHT,   .ndim = 2, .data = up,   .shape = {2048, 512}},
 *         {.role = FFN_ROLE_DOWN_WEIGHT, .ndim = 2, .data = down, .shape = {512, 2048}}};
 *     ffn_layer_options_t options = {.struct_size = sizeof options, .activation = FFN_ACTIVATION_GELU, .residual = FFN_RESIDUAL_INPUT,
 *                                    .tensors = tensors, .tensor_count = 2};
 *     options.norm[FFN_NORM_IN] = FFN_NORM_LAYER;
 *     ffn_layer_t *layer;
 *     if (ffn_layer_create(NULL, &options, &layer) != FFN_OK) return fail(ffn_last_error());
 *     ffn_layer_forward(layer, NULL, tokens, x, 0, y, 0);
 *     ffn_layer_free(layer);
 */
#ifndef FFN_FFN_H
#define FFN_FFN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(FFN_NO_VISIBILITY)
#define FFN_API __attribute__((visibility("default")))
#else
#define FFN_API
#endif

/* ---------------------------------------------------------------- Version */

#define FFN_VERSION_MAJOR 0
#define FFN_VERSION_MINOR 1
#define FFN_VERSION_PATCH 0

/* The version of the library that runs, as major * 65536 + minor * 256 + patch. Compare it with FFN_VERSION_* of the header compiled against. */
FFN_API uint32_t ffn_version(void);

/* The same as text, "0.1.0". Static storage, never NULL. */
FFN_API const char *ffn_version_string(void);

/* The ABI's number, which is the number in the SONAME: a program linked against one ABI version runs with every later library of that number. */
FFN_API uint32_t ffn_abi_version(void);

/* One line on how this library was built and what it found: version, compiler, highest ISA level built in, ISA level of this CPU, BLAS library.
 * Thread-local storage of fixed size: valid until the same thread calls ffn_build_info again. Never NULL. */
FFN_API const char *ffn_build_info(void);

/* ----------------------------------------------------------------- Status */

typedef int32_t ffn_status_t;

enum {
    FFN_OK = 0,
    FFN_INVALID = -1,     /* an argument is wrong: the sentence in ffn_last_error() names it */
    FFN_NO_MEMORY = -2,   /* an allocation failed (or a thread that was needed could not be started) */
    FFN_UNSUPPORTED = -3, /* well-formed, but this version, CPU or build cannot do it */
    FFN_BUSY = -4         /* the context is inside another call */
};

/* "FFN_OK", "FFN_INVALID", ...; "unknown status" for any other number. Static storage, never NULL. */
FFN_API const char *ffn_status_name(ffn_status_t status);

/* Why the last failing call of THIS thread failed: one line, such as "d_ff is 0, must be at least 1". "" if none has failed yet. A call
 * that succeeds leaves it alone. Thread-local storage of fixed size: valid until this thread's next failure. Never NULL. */
FFN_API const char *ffn_last_error(void);

/* ------------------------------------------------------- Memory and tasks */

/* Where the memory of a handle comes from. allocate returns size bytes at a multiple of alignment (a power of two, 64 or more), or NULL;
 * release gets what allocate returned (never NULL) with the same size. Both may be called from any thread that uses the handle, for a layer
 * also from the thread that frees it. NULL in place of the struct means the C library's aligned_alloc and free; for 4 MB and more Linux is then
 * asked for huge pages (madvise), which a caller who does not want them avoids with an allocator. */
typedef struct ffn_allocator {
    uint32_t struct_size; /* required: sizeof(ffn_allocator_t) */
    uint32_t reserved;    /* 0 */
    void *user;           /* passed back as it is */
    void *(*allocate)(void *user, uint64_t size, uint64_t alignment); /* required */
    void (*release)(void *user, void *memory, uint64_t size);         /* required */
} ffn_allocator_t;

/* One of a number of independent tasks. */
typedef void (*ffn_task_fn)(void *task_data, int64_t index);

/* A caller's parallel-for: must call task(task_data, i) exactly once for each i in 0 .. count-1, on any threads, in any order, also one
 * after the other (no task waits for another), and return after the last one has ended. It must not call the context that uses it. */
typedef void (*ffn_parallel_for_fn)(void *user, int64_t count, ffn_task_fn task, void *task_data);

/* ---------------------------------------------------------------- Context */

typedef struct ffn_context ffn_context_t; /* threads and scratch memory; one call at a time */
typedef struct ffn_layer ffn_layer_t;     /* weights and configuration; never changes; shared by threads */

typedef struct ffn_context_options {
    uint32_t struct_size;             /* required: sizeof(ffn_context_options_t) */
    uint32_t flags;                   /* 0: none is defined yet */
    uint32_t threads;                 /* threads of a call, the calling one included: 1 to 1024. 0: as many as the process's affinity mask and
                                         cgroup CPU quota allow. Governs the native engine and libffn's other passes; with the blas engine the
                                         products run on OpenBLAS's threads, which belong to the program (openblas_set_num_threads) and are never set. */
    uint32_t reserved;                /* 0 */
    ffn_parallel_for_fn parallel_for; /* NULL: the context starts threads - 1 workers of its own. Else it starts none and gives its tasks to
                                         this function, about `threads` at a time. */
    void *parallel_user;              /* first argument of parallel_for */
    const ffn_allocator_t *allocator; /* NULL: aligned_alloc and free. Copied. */
    uint64_t scratch_limit;           /* bytes of scratch memory that the context may hold; 0: no limit. Blocks of tokens get smaller to keep it, and
                                         calls slower; a layer that cannot run even one token within it gets FFN_NO_MEMORY */
} ffn_context_options_t;

/* Makes a context. options NULL means all defaults. *context is NULL on failure.
 * Workers that the system refuses to start are done without: ffn_context_info tells how many there are. After a call they look out for another for
 * some 50 microseconds, then sleep. After fork() a context goes on in the child: it starts its workers anew at the next call that wants them.
 * Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_UNSUPPORTED (unknown fields of a larger struct). */
FFN_API ffn_status_t ffn_context_create(const ffn_context_options_t *options, ffn_context_t **context);

/* Ends the workers and frees the context. NULL is fine. No call may be running in it. */
FFN_API void ffn_context_free(ffn_context_t *context);

/* Allocates the scratch memory that runs of `layer` on up to `tokens` tokens need, so that those allocate nothing and cannot fail for want of
 * memory. A context keeps the largest scratch that any of its layers needed. context NULL: the calling thread's own scratch. tokens >= 0.
 * The need stops growing at a few hundred tokens: longer runs go through in blocks (a mixture of experts: at about moe.chunk_bytes, but for a capacity
 * over all tokens; a run that brings a routing of a larger top_k may need more). With the native engine it grows with the context's threads, each
 * of which may work on a block of its own; scratch_limit of the context bounds it.
 * Statuses: FFN_INVALID, FFN_NO_MEMORY (the context is as before), FFN_BUSY. */
FFN_API ffn_status_t ffn_context_reserve(ffn_context_t *context, const ffn_layer_t *layer, int64_t tokens);

typedef struct ffn_context_info_t {
    uint32_t struct_size;       /* set by the caller: sizeof(ffn_context_info_t) */
    uint32_t flags;             /* 0 */
    uint32_t threads_requested; /* after the default was resolved */
    uint32_t threads;           /* that a call uses, the calling one included: less if workers could not be started */
    uint64_t scratch_bytes;     /* held now */
} ffn_context_info_t;

/* Writes what the context is to *info: as many bytes as both sides know; what only a newer caller knows becomes 0.
 * context NULL: the calling thread's (threads 1). Statuses: FFN_INVALID, FFN_NO_MEMORY (context NULL, in a thread's first call), FFN_BUSY. */
FFN_API ffn_status_t ffn_context_info(ffn_context_t *context, ffn_context_info_t *info);

/* ---------------------------------------------------------------- Tensors */

/* Types of elements. Weights, inputs and outputs are float32 in this version; the narrow ones follow. */
enum { FFN_DTYPE_F32 = 0 };

/* What a tensor is to the layer. Weights are always described as [out, in]; a file that stores [in, out], or gate and up in one tensor,
 * halved or interleaved, is the same bytes with other strides:
 *     [in, out] (GPT-2's Conv1D)              shape {out, in}, stride {4, 4*out}
 *     fused [gate; up], rows 0..d_ff-1 gate   gate: data, up: data + d_ff rows (or the other way round), both with row stride 4*d_model
 *     interleaved, even rows gate             gate: data, up: data + one row, both with stride {8*d_model, 4} */
enum {
    FFN_ROLE_NONE = 0,
    FFN_ROLE_UP_WEIGHT = 1,   /* [d_ff, d_model]  required; the linear branch of a gated layer */
    FFN_ROLE_UP_BIAS = 2,     /* [d_ff] */
    FFN_ROLE_GATE_WEIGHT = 3, /* [d_ff, d_model]  makes the layer gated; the activated branch */
    FFN_ROLE_GATE_BIAS = 4,   /* [d_ff]           only with a gate weight */
    FFN_ROLE_DOWN_WEIGHT = 5, /* [d_out, d_ff]    required */
    FFN_ROLE_DOWN_BIAS = 6,   /* [d_out] */

    FFN_ROLE_NORM_IN_WEIGHT = 16,     /* [d_model]  norm tensors are allowed only where options.norm has a norm; without a weight (o + w) is 1, without a bias b is 0 */
    FFN_ROLE_NORM_IN_BIAS = 17,       /* [d_model] */
    FFN_ROLE_NORM_MID_WEIGHT = 18,    /* [d_ff] */
    FFN_ROLE_NORM_MID_BIAS = 19,      /* [d_ff] */
    FFN_ROLE_NORM_BRANCH_WEIGHT = 20, /* [d_out] */
    FFN_ROLE_NORM_BRANCH_BIAS = 21,   /* [d_out] */
    FFN_ROLE_NORM_OUT_WEIGHT = 22,    /* [d_out] */
    FFN_ROLE_NORM_OUT_BIAS = 23,      /* [d_out] */

    FFN_ROLE_BRANCH_SCALE = 32,   /* c: [1] or [d_out]; absent: 1. LayerScale, Granite's multiplier, Conformer's half, a tanh gate (flag) */
    FFN_ROLE_RESIDUAL_SCALE = 33, /* a: [1] or [d_out]; absent: 1. Only with a residual */
    FFN_ROLE_XIELU_ALPHA_P = 34,  /* [1]  required by, and only allowed with, activation xielu: the learned scalar before its softplus */
    FFN_ROLE_XIELU_ALPHA_N = 35,  /* [1]  likewise */

    /* Only with options.moe. E experts and Z identity experts; d_expert is d_model, or with latent projections their width d_latent. The roles 1 to 6
     * and 18, 19 are then each expert's own, [d_ff, d_expert], [d_ff], [d_expert, d_ff] (without latent projections [d_out, d_ff]), ...: see
     * ffn_tensor_t.expert. All experts have the same shapes, and a role for all or for none. */
    FFN_ROLE_ROUTER_WEIGHT = 40,      /* [E + Z, d_model]  absent: each run brings its routing */
    FFN_ROLE_ROUTER_BIAS = 41,        /* [E + Z]           added to the logits. gpt-oss */
    FFN_ROLE_ROUTER_NORM_WEIGHT = 42, /* [d_model]         only with moe.router_norm */
    FFN_ROLE_SELECTION_BIAS = 43,     /* [E + Z]           chooses, and is in no weight. DeepSeek-V3's e_score_correction_bias */
    FFN_ROLE_EXPERT_SCALE = 44,       /* [E + Z]           multiplies the weights. Gemma-4's per_expert_scale */
    FFN_ROLE_COMBINE_BIAS = 45,       /* [d_out]           added once, after the combination. JetMoE */
    FFN_ROLE_SHARED_UP_WEIGHT = 46,   /* [d_shared, d_model]  the experts that all tokens go to, as one network of their widths' sum */
    FFN_ROLE_SHARED_UP_BIAS = 47,     /* [d_shared] */
    FFN_ROLE_SHARED_GATE_WEIGHT = 48, /* [d_shared, d_model]  makes it gated */
    FFN_ROLE_SHARED_GATE_BIAS = 49,   /* [d_shared] */
    FFN_ROLE_SHARED_DOWN_WEIGHT = 50, /* [d_out, d_shared]  required by SHARED_UP_WEIGHT */
    FFN_ROLE_SHARED_DOWN_BIAS = 51,   /* [d_out] */
    FFN_ROLE_SHARED_SCALE_WEIGHT = 52, /* [1, d_model]     multiplies the shared experts by sigmoid(w x). Qwen2-MoE's shared_expert_gate */
    FFN_ROLE_LATENT_IN_WEIGHT = 53,   /* [d_latent, d_model]  before the routed experts, and with it */
    FFN_ROLE_LATENT_IN_BIAS = 54,     /* [d_latent] */
    FFN_ROLE_LATENT_OUT_WEIGHT = 55,  /* [d_out, d_latent]    behind their sum. Nemotron-H */
    FFN_ROLE_LATENT_OUT_BIAS = 56,    /* [d_out] */

    FFN_ROLE_UP_TAPS = 60,  /* [d_model, k]  of a convolutional layer alone (ffn_conv_*), whose weights may have a third dimension, k */
    FFN_ROLE_DOWN_TAPS = 61 /* [d_ff, k] */
};

typedef struct ffn_quant ffn_quant_t;              /* scales and zero points of narrow weights: a later version */
typedef struct ffn_moe_options ffn_moe_options_t;  /* the options of a mixture of experts */
typedef struct ffn_moe_run ffn_moe_run_t;          /* what is particular to a run of one */
typedef struct ffn_moe_backward ffn_moe_backward_t; /* and to its backward pass */

/* One role-tagged view of an array of the caller's. 128 bytes, frozen. In 64-bit builds and in 32-bit ones pointers differ in size; the
 * order of the fields does not. */
typedef struct ffn_tensor {
    uint32_t role;            /* required: FFN_ROLE_* */
    uint32_t expert;          /* of an expert's own role: the expert that it describes, or of a stack the first one. Else 0 */
    uint32_t dtype;           /* FFN_DTYPE_*; 0 is float32 */
    uint32_t ndim;            /* required: 2 for matrices, 1 for the rest. One more, of an expert's own role: a stack, whose first dimension counts
                                 the experts from `expert` on. Each expert once, in any mixture of stacks and single tensors */
    void *data;               /* required: element [0, 0]; a multiple of 4. Read only, except by ffn_layer_read, which writes through it */
    int64_t shape[4];         /* required: the first ndim; the others 0 */
    int64_t stride[4];        /* bytes from an element to the next in each dimension; negative and 0 too (a broadcast); a multiple of 4.
                                 All 0: contiguous, the last dimension fastest */
    const ffn_quant_t *quant; /* NULL */
    uint64_t reserved[4];     /* 0 */
} ffn_tensor_t;

/* ------------------------------------------------------------------ Layer */

/* The activations. x is the pre-activation, sigmoid(z) = 1 / (1 + e^-z), Phi the normal distribution function. All are exact to a few units
 * in the last place over all finite x, tails included (docs/accuracy.md has each kernel's measured bound). NaN gives NaN; +inf and -inf give
 * the limit (gelu, silu and their kin: +inf and -0 or 0). alpha and beta are options; "(default v)" is what 0 means. */
enum {
    FFN_ACTIVATION_NONE = 0,       /* not set: refused, because no default would be right for most */
    FFN_ACTIVATION_IDENTITY = 1,   /* x                                     bilinear GLU */
    FFN_ACTIVATION_RELU = 2,       /* max(x, 0)                             Transformer, T5, OPT */
    FFN_ACTIVATION_LEAKY_RELU = 3, /* x > 0 ? x : alpha x                   alpha (default 0.01) */
    FFN_ACTIVATION_RELU6 = 4,      /* min(max(x, 0), 6) */
    FFN_ACTIVATION_RELU2 = 5,      /* max(x, 0)^2                           Primer, Nemotron, RWKV */
    FFN_ACTIVATION_GELU = 6,       /* x Phi(x) = x/2 erfc(-x/sqrt 2)        BERT, ViT; the exact form. Hendrycks & Gimpel, arXiv 1606.08415 */
    FFN_ACTIVATION_GELU_TANH = 7,  /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   GPT-2 (gelu_new, gelu_pytorch_tanh), Gemma */
    FFN_ACTIVATION_QUICK_GELU = 8, /* x sigmoid(1.702 x)                    CLIP */
    FFN_ACTIVATION_GELU_10 = 9,    /* clip(gelu(x), -10, 10) */
    FFN_ACTIVATION_SILU = 10,      /* x sigmoid(x)                          LLaMA's SwiGLU */
    FFN_ACTIVATION_SWISH = 11,     /* x sigmoid(beta x)                     beta (default 1). Ramachandran et al., arXiv 1710.05941 */
    FFN_ACTIVATION_SIGMOID = 12,   /* sigmoid(x)                            the original GLU */
    FFN_ACTIVATION_TANH = 13,      /* tanh(x) */
    FFN_ACTIVATION_MISH = 14,      /* x tanh(log(1 + e^x)) */
    FFN_ACTIVATION_ELU = 15,       /* x > 0 ? x : alpha (e^x - 1)           alpha (default 1) */
    FFN_ACTIVATION_HARDSWISH = 16, /* x min(max(x + 3, 0), 6) / 6 */
    FFN_ACTIVATION_SOFTPLUS = 17,  /* log(1 + e^x) */
    FFN_ACTIVATION_LAPLACE = 18,   /* (1 + erf((x - 0.707107) / (0.282095 sqrt 2))) / 2      Mega */
    FFN_ACTIVATION_XIELU = 19      /* x > 0 ? p x^2 + beta x : n (e^min(x, alpha) - 1 - x) + beta x; p = softplus(alpha_p), n = beta +
                                      softplus(alpha_n) from the two learned scalars; beta (default 0.5), alpha is the formula's epsilon
                                      (default -1e-6). Apertus, arXiv 2411.13010 */
};

/* The id of a name ("gelu_tanh"), in lower case as in the list above without its prefix. Other spellings of config files (gelu_new, ...)
 * belong to libffn-io. An unknown name is FFN_INVALID, with the known names in the sentence; *activation is then FFN_ACTIVATION_NONE. */
FFN_API ffn_status_t ffn_activation_from_name(const char *name, uint32_t *activation);

/* The name of an id, or NULL for a number that is none (FFN_ACTIVATION_NONE included). Static storage. */
FFN_API const char *ffn_activation_name(uint32_t activation);

/* The four norm slots: index into options.norm, norm_eps and norm_offset. Pre-norm is IN; post-norm (BERT) is OUT; sandwich (Gemma 2) is IN
 * and BRANCH; OLMo 2 is BRANCH; BitNet is IN and MID. */
enum { FFN_NORM_IN = 0, FFN_NORM_MID = 1, FFN_NORM_BRANCH = 2, FFN_NORM_OUT = 3 };

/* Kinds of norm, over the n numbers v of one row; w and b are the slot's tensors, o its offset. Variance and mean square are computed in two
 * passes in float64: no cancellation, a constant row gives exactly b, and |v| up to the largest float works. */
enum {
    FFN_NORM_NONE = 0,
    FFN_NORM_LAYER = 1, /* (v - mean) / sqrt(variance + eps) * (o + w) + b     variance = mean((v - mean)^2); Ba et al., arXiv 1607.06450 */
    FFN_NORM_RMS = 2,   /* v / sqrt(mean(v^2) + eps) * (o + w) + b             Zhang & Sennrich, arXiv 1910.07467 */
    FFN_NORM_AFFINE = 3 /* v * (o + w) + b                                     MobileBERT's NoNorm */
};

/* What r is. INPUT and NORMED need d_out = d_model. */
enum {
    FFN_RESIDUAL_NONE = 0,
    FFN_RESIDUAL_INPUT = 1,   /* x as given */
    FFN_RESIDUAL_NORMED = 2,  /* NORM_IN(x), the branch's input (BLOOM's apply_residual_connection_post_layernorm, MiniMax) */
    FFN_RESIDUAL_EXTERNAL = 3 /* ffn_run_t.residual, [tokens, d_out] (parallel blocks, reversible streams) */
};

/* Who multiplies the matrices. Decided when the layer is made, for good: its weights are packed for one engine.
 *
 * With the native engine the bits of a token's output depend on that token and the layer alone: not on the other tokens of the call, nor on their
 * number, the token's place among them, the strides, the context and its number of threads. Each product is one chain of fused multiply-adds over
 * the inputs in their order (rounded apart at the scalar level). What may change bits: another ISA level, another engine, another version of the
 * library. Its calls take no lock that another context could hold, and no library besides this one takes part. */
enum {
    FFN_ENGINE_AUTO = 0,  /* native where there are vector kernels (AVX2 and up): it measures ahead at every number of tokens, docs/performance.md.
                             At the scalar level, and for mixtures and convolutional layers that are trainable, blas */
    FFN_ENGINE_BLAS = 1,  /* cblas_sgemm and cblas_sgemv, with fused passes between them. Threads in the products are BLAS's own */
    FFN_ENGINE_NATIVE = 2 /* own kernels on panels of weights, packed once; at every level */
};

/* The ladder of instruction sets, in order. A level stands for a bundle of CPU features that the operating system has enabled too. */
enum {
    FFN_ISA_AUTO = 0,
    FFN_ISA_SCALAR = 1, /* plain C, every CPU */
    FFN_ISA_AVX2 = 2,   /* AVX2, FMA */
    FFN_ISA_AVX512 = 3  /* AVX-512 F, BW, DQ, VL on top */
};

/* options.flags */
enum {
    FFN_LAYER_TANH_BRANCH_SCALE = 1,  /* c = tanh(tensor): the tanh gates of Flamingo and Mllama. Needs the tensor */
    FFN_LAYER_TANH_RESIDUAL_SCALE = 2, /* a = tanh(tensor). Needs the tensor */
    FFN_LAYER_TRAINABLE = 4           /* may be run with a tape and dropout, and be updated */
};

typedef struct ffn_layer_options {
    uint32_t struct_size;           /* required: sizeof(ffn_layer_options_t) */
    uint32_t flags;                 /* FFN_LAYER_* or-ed */
    int64_t d_model;                /* width of x, d_ff of the hidden row, d_out of y: 1 to 2^29. 0: taken from the tensors, */
    int64_t d_ff;                   /*   whose shapes must agree with each other and with a number given here */
    int64_t d_out;
    uint32_t activation;            /* required: FFN_ACTIVATION_* */
    uint32_t residual;              /* FFN_RESIDUAL_* */
    float alpha;                    /* parameter of leaky_relu, elu, xielu; refused with the others. Finite */
    float beta;                     /* parameter of swish and xielu; refused with the others. Finite */
    float gate_max;                 /* gated only, >= 0: gate = min(gate, gate_max) before the activation, from above only. 0: no clamp */
    float up_limit;                 /* gated only, >= 0: up = clip(up, -up_limit, up_limit). 0: no clamp */
    float up_offset;                /* gated only, finite: added to up after its clamp.
                                       gpt-oss: swish, beta 1.702, gate_max 7, up_limit 7, up_offset 1. DeepSeek-V4: silu, 10, 10, 0 */
    uint32_t engine;                /* FFN_ENGINE_* */
    uint32_t max_isa;               /* FFN_ISA_*: use no level above it. FFN_MAX_ISA in the environment (scalar, avx2, avx512) likewise: the lower wins */
    uint32_t norm[4];               /* kind of norm per slot, FFN_NORM_IN .. FFN_NORM_OUT */
    float norm_eps[4];              /* >= 0, finite. 0: 1e-5 for layer, 1e-6 for rms. Must be 0 for affine and none */
    float norm_offset[4];           /* o above: 0, or 1 for the (1 + w) norms (Gemma, Nemotron, Qwen3-Next). Finite; must be 0 for none */
    uint32_t reserved;              /* 0 */
    const ffn_tensor_t *tensors;    /* required: each role at most once, of each expert */
    uint64_t tensor_count;
    const ffn_moe_options_t *moe;   /* NULL: a dense layer. Copied, with what it points to */
    const ffn_allocator_t *allocator; /* for the layer's memory. NULL: aligned_alloc and free. Copied */
} ffn_layer_options_t;

/* Makes a layer: checks the options, copies and packs the weights (one allocation; ffn_layer_info tells its size), and chooses engine and ISA
 * level for good. The context's threads help with the packing; NULL: the calling thread alone. *layer is NULL on failure.
 * Memory: the weights are held once. For the native engine d_ff and d_out are rounded up to whole panels (32 columns with AVX-512, else 16), and a
 * trainable layer holds its matrices twice: the backward pass multiplies by their transposes.
 * Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_UNSUPPORTED (a dtype, engine native for a mixture with FFN_LAYER_TRAINABLE, unknown fields of a larger
 * struct), FFN_BUSY. */
FFN_API ffn_status_t ffn_layer_create(ffn_context_t *context, const ffn_layer_options_t *options, ffn_layer_t **layer);

/* Frees the layer. NULL is fine. No call may be using it. */
FFN_API void ffn_layer_free(ffn_layer_t *layer);

/* Runs the layer: y[t] = layer(x[t]) for t = 0 .. tokens-1 (the formula at the top of this file).
 *   x  [tokens, d_model], rows dense, row t at (char *)x + t * x_stride
 *   y  [tokens, d_out],   likewise; written only
 *   x_stride, y_stride    bytes, at least a row's size and a multiple of 4; 0: contiguous rows
 * Aliasing: y may be x exactly (same address and stride, d_out = d_model): the same bits come out. Any other overlap of y with x is refused;
 * rows of x and y that interleave without sharing an element (same stride) are fine.
 * tokens 0 does nothing and looks at no pointer. Padding between rows is neither read nor written.
 * Same arguments, machine, library, engine and thread counts: same bits. With the native engine a token's bits depend on the token and the layer
 * alone (FFN_ENGINE_* has the whole promise). With the blas engine they may change with the number of tokens and of BLAS threads, as OpenBLAS's do.
 * A layer with an external residual needs ffn_layer_run: FFN_INVALID here.
 * Statuses: FFN_INVALID, FFN_NO_MEMORY (scratch memory: never after ffn_context_reserve; or a thread to compute on, where the calling one has too
 * little stack for OpenBLAS's threads), FFN_BUSY. */
FFN_API ffn_status_t ffn_layer_forward(const ffn_layer_t *layer, ffn_context_t *context, int64_t tokens, const float *x, int64_t x_stride,
                                       float *y, int64_t y_stride);

/* Where dropout acts, and index into ffn_dropout_t.p. */
enum {
    FFN_DROPOUT_PRE_ACTIVATION = 0, /* on W_up x + b_up; gated: on W_gate x + b_gate, before its clamp   Reformer */
    FFN_DROPOUT_ACTIVATION = 1,     /* on act(...)                                                       the Transformer's relu_dropout, BART, wav2vec2 */
    FFN_DROPOUT_HIDDEN = 2,         /* on the hidden row, before NORM_MID; gated: on the product         T5, ModernBERT */
    FFN_DROPOUT_BRANCH = 3,         /* on f = NORM_BRANCH(W_down h + b_down)                             residual dropout: BERT, GPT-2 */
    FFN_DROPOUT_PATH = 4            /* the whole branch of a sequence at once (DropPath, stochastic depth) DINOv2, BEiT */
};

/* Dropout of a run: each number is dropped, to 0 whatever it was, with probability p, else multiplied by 1 / (1 - p). p 0 leaves a site alone, to the
 * bit; p 1 gives zeros.
 *
 * What is dropped is a function of the fields below and the number's place alone: the same for any number of threads, batch split (first_row) and ISA
 * level, and in the backward pass, which draws it again: no mask is stored. The number in column j of row r is dropped if word j % 4 of Philox 4x32-10
 * (Salmon et al. 2011), with the key `seed` (its low word first) and the counter
 *     ( site * 2^28 + j / 4,  r mod 2^32,  step,  layer * 2^16 + r / 2^32 )
 * is below round(2^32 p). r is first_row + the row's number in the run (batch * length + t); at a site that is broadcast, and for PATH with j = 0, it
 * is first_sequence + the sequence's number instead. On a gated layer ACTIVATION acts on the product too, which is the same number: act(g) * u. */
typedef struct ffn_dropout {
    uint32_t struct_size;       /* required: sizeof(ffn_dropout_t) */
    uint32_t broadcast;         /* bit 1 << site, sites 0 to 3: one mask for all rows of a sequence (T5 of mesh and flax, tensor2tensor) */
    uint64_t seed;              /* any number */
    uint64_t step;              /* of training: 0 to 2^32 - 1 */
    uint64_t layer;             /* number of the layer in the model: 0 to 65534 */
    int64_t first_row;          /* number of the run's first row, >= 0; rows end at 2^48 */
    int64_t first_sequence;     /* number of the run's first sequence, likewise */
    float p[5];                 /* by site: 0 to 1 */
    uint32_t reserved;          /* 0 */
} ffn_dropout_t;

typedef struct ffn_tape ffn_tape_t; /* what a forward pass leaves for the backward pass: ffn_tape_create */
typedef struct ffn_stats ffn_stats_t; /* what the hidden units of a layer did in some runs: ffn_stats_create */

typedef struct ffn_run {
    uint32_t struct_size;       /* required: sizeof(ffn_run_t) */
    uint32_t flags;             /* 0: none is defined yet */
    int64_t batch;              /* sequences, >= 0 */
    int64_t length;             /* rows of each, >= 0; the run is batch * length tokens */
    const void *x;              /* [batch, length, d_model] */
    void *y;                    /* [batch, length, d_out] */
    const void *residual;       /* [batch, length, d_out] with FFN_RESIDUAL_EXTERNAL, where it is required; else NULL */
    int64_t x_stride[2];        /* bytes from sequence to sequence and from row to row, positive; both 0: contiguous. A sequence stride of 0 */
    int64_t y_stride[2];        /*   beside a row stride means length * row stride. Rows are dense */
    int64_t residual_stride[2];
    uint32_t x_dtype;           /* FFN_DTYPE_* */
    uint32_t y_dtype;
    uint32_t residual_dtype;
    uint32_t reserved;          /* 0 */
    const ffn_dropout_t *dropout; /* NULL: none. Only with a trainable layer */
    ffn_tape_t *tape;           /* NULL: no backward pass follows. Only with a trainable layer */
    const ffn_moe_run_t *moe;   /* NULL: nothing particular. Only with a mixture of experts */
    ffn_stats_t *stats;         /* NULL: nothing is counted. Else of the layer's d_ff, experts and d_shared, for at most 2^31 - 1 tokens; y has the same
                                   bits (NaN is NaN) */
} ffn_run_t;

/* Runs the layer as ffn_layer_forward does, on sequences with strides of their own and with an external residual.
 * Aliasing: y may be x exactly, and y may be residual exactly (same address and strides): the same bits come out. Any other overlap of y with
 * an input is refused (tensors that interleave are judged row by row only if each has one constant row stride, else by their whole range).
 * With a tape y must not be x or residual: the tape borrows both, and they must stay as they are until ffn_layer_backward has read them.
 * Statuses: as ffn_layer_forward; FFN_UNSUPPORTED (a dtype, unknown fields of a larger struct). */
FFN_API ffn_status_t ffn_layer_run(const ffn_layer_t *layer, ffn_context_t *context, const ffn_run_t *run);

typedef struct ffn_layer_info_t {
    uint32_t struct_size;   /* set by the caller: sizeof(ffn_layer_info_t) */
    uint32_t flags;         /* as in the options */
    int64_t d_model;
    int64_t d_ff;
    int64_t d_out;
    uint32_t gated;         /* 1 with a gate weight, else 0 */
    uint32_t activation;    /* as in the options */
    uint32_t residual;
    uint32_t norm[4];
    uint32_t engine;        /* as resolved: never AUTO */
    uint32_t isa;           /* as resolved: never AUTO */
    uint32_t reserved;      /* 0 */
    int64_t parameters;     /* numbers in all tensors given */
    int64_t parameters_of[64]; /* by role: [FFN_ROLE_UP_WEIGHT] = d_ff * d_model, ... 0 for absent ones; of all experts together */
    uint64_t bytes;         /* memory that the layer holds */
    int64_t experts;        /* with weights. 0: a dense layer, and so are the next four */
    int64_t identity_experts;
    int64_t top_k;
    int64_t d_shared;       /* hidden width of the shared experts. 0: none */
    int64_t d_latent;       /* 0: no latent projections */
    int64_t active_parameters; /* that a token meets: all but those of experts - top_k experts. Of a dense layer: parameters */
} ffn_layer_info_t;

/* Writes what the layer is to *info: as many bytes as both sides know; what only a newer caller knows becomes 0. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_layer_info(const ffn_layer_t *layer, ffn_layer_info_t *info);

/* Gives weights back: writes the tensors named by role into the caller's arrays (data, shape, stride as in ffn_layer_options_t; any subset; each
 * role at most once, of each expert; stacks of any experts), exactly the numbers that ffn_layer_create was given. Nothing is written unless all are
 * right. A view in which two elements could share an address (stride 0, or one smaller than what it steps over) is refused; two views must not
 * overlap. Interleaved and transposed views are fine. Statuses: FFN_INVALID (also a role that the layer does not have), FFN_UNSUPPORTED (dtype). */
FFN_API ffn_status_t ffn_layer_read(const ffn_layer_t *layer, const ffn_tensor_t *tensors, uint64_t tensor_count);

/* The d_ff that gives a gated layer (three matrices) the parameters of a dense one (two): 2/3 d_ff, rounded up to a multiple of `multiple`
 * (arXiv 2002.05202 section 2). ffn_gated_d_ff(3072, 1) = 2048; (16384, 256) = 11008, LLaMA's. d_ff 1 to 2^29, multiple 1 to 2^29.
 * *gated_d_ff is 0 on failure. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_gated_d_ff(int64_t d_ff, int64_t multiple, int64_t *gated_d_ff);

/* ----------------------------------------------------------------- Training */

/* options.flags of ffn_tape_create */
enum { FFN_TAPE_RECOMPUTE = 1 }; /* the backward pass computes the pre-activations again, from x, with the first product: no memory for them */

typedef struct ffn_tape_options {
    uint32_t struct_size; /* required: sizeof(ffn_tape_options_t) */
    uint32_t flags;       /* FFN_TAPE_RECOMPUTE, or 0: the pre-activations are kept, [tokens, d_ff], gated twice that: the fastest */
    const ffn_allocator_t *allocator; /* NULL: aligned_alloc and free. Copied */
} ffn_tape_options_t;

/* Makes an empty tape. A run with it records; ffn_layer_backward reads what was recorded, once. It may then record again, also for another layer, and
 * allocates only where it has to grow. With a norm after the branch (BRANCH, OUT) or a branch scale it also keeps the down product, [tokens, d_out].
 * One call at a time may use a tape. *tape is NULL on failure. Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_UNSUPPORTED. */
FFN_API ffn_status_t ffn_tape_create(const ffn_tape_options_t *options, ffn_tape_t **tape);
FFN_API void ffn_tape_free(ffn_tape_t *tape); /* NULL is fine */

/* Allocates what recording runs of `layer` on up to `tokens` tokens needs. What was recorded is lost. Statuses: FFN_INVALID, FFN_NO_MEMORY. */
FFN_API ffn_status_t ffn_tape_reserve(ffn_tape_t *tape, const ffn_layer_t *layer, int64_t tokens);

/* flags of ffn_layer_backward */
enum { FFN_BACKWARD_ACCUMULATE = 1 }; /* add to what the gradients' arrays hold; else they are overwritten, and need not be numbers before */

typedef struct ffn_backward {
    uint32_t struct_size;        /* required: sizeof(ffn_backward_t) */
    uint32_t flags;              /* FFN_BACKWARD_ACCUMULATE or 0; d_x and d_residual are always overwritten */
    ffn_tape_t *tape;            /* required: recorded by a run of this layer, used up by this call */
    const void *d_y;             /* [batch, length, d_out], required: the derivatives of the loss by y */
    void *d_x;                   /* [batch, length, d_model]: those by x. NULL: not wanted */
    void *d_residual;            /* [batch, length, d_out]: those by an external residual. NULL: not wanted */
    int64_t d_y_stride[2];       /* as the strides of ffn_run_t */
    int64_t d_x_stride[2];
    int64_t d_residual_stride[2];
    uint32_t d_y_dtype;          /* FFN_DTYPE_* */
    uint32_t d_x_dtype;
    uint32_t d_residual_dtype;
    uint32_t reserved;           /* 0 */
    const ffn_tensor_t *gradients; /* by role, any subset of the layer's tensors, in the shapes that it was given: written through their strides. Of an
                                      expert's own roles stacks and single tensors, of any experts */
    uint64_t gradient_count;
    const ffn_moe_backward_t *moe; /* NULL: nothing particular. Only with a mixture of experts */
} ffn_backward_t;

/* The backward pass of the run on the tape: the exact derivatives of the loss by x, by an external residual and by each tensor of the layer that has a
 * view in `gradients` (of FFN_LAYER_TANH_* scales by the number before the tanh, of xielu's scalars by those before their softplus), through the
 * same dropout. batch and length are the run's. With 0 tokens the gradients are 0.
 * Sums over tokens: the vectors' in float32 over 32 tokens and float64 beyond; the matrices' by sgemm, or with the native engine as chains of
 * multiply-adds over 256 tokens (fewer where the context's scratch_limit is too low for that), added up in their order. The same bits for any number of
 * threads of the context; with the blas engine at a fixed number of BLAS threads. At a kink of an activation or a clamp the derivative is that of the
 * lower side (relu at 0: 0).
 * Layouts: a matrix whose rows or columns are dense is written in place; any other goes through scratch memory of its size.
 * Aliasing: d_x and d_residual may each be d_y exactly, but not both; gradients must share no byte with each other, and their range none with d_y, d_x,
 * d_residual, x and residual.
 * Refused, with nothing written and the tape as it was: a tape that is empty or used up, of another layer, or recorded before an ffn_layer_update; a
 * role that the layer does not have; a shape of another size; overlaps.
 * Statuses: FFN_INVALID, FFN_NO_MEMORY (never after ffn_context_reserve, layouts through scratch memory aside), FFN_UNSUPPORTED, FFN_BUSY. */
FFN_API ffn_status_t ffn_layer_backward(const ffn_layer_t *layer, ffn_context_t *context, const ffn_backward_t *backward);

/* Puts new values of some tensors into a trainable layer, in place of ffn_layer_create: by role, any subset, each in the shape that it was given, from
 * any strides. No other call may be using the layer. Tapes recorded before are no longer accepted. Nothing is changed unless all are right. The
 * context's threads help. Statuses: FFN_INVALID, FFN_NO_MEMORY (a thread's first call), FFN_UNSUPPORTED (a layer that is not trainable, a dtype),
 * FFN_BUSY. */
FFN_API ffn_status_t ffn_layer_update(ffn_layer_t *layer, ffn_context_t *context, const ffn_tensor_t *tensors, uint64_t tensor_count);

/* ------------------------------------------------------ Convolutional layer */

/* The feed-forward layer whose two products reach along the sequence:
 *
 *     y = D( CONV2( D( act( CONV1(x) ) ) ) )
 *
 * Each convolution has its kernel size k, and takes one of two forms, which its tensors tell. u[t] is its input at position t of a sequence, a row of
 * zeros before the first position and behind the last (no tap reaches into another sequence); `left` is k - 1 with padding LEFT, else (k - 1) / 2:
 *
 *     dense       v[t] = s * ( W_0 u[t - left] + W_1 u[t - left + 1] + ... + W_{k-1} u[t - left + k - 1] + b )        W_j [out, in]
 *     separable   v[t] = s * ( W ( w_0 * u[t - left] + ... + w_{k-1} * u[t - left + k - 1] ) + b )                     w_j [in], W [out, in]
 *
 * (the products w_j * u channel by channel; the depthwise step has no bias). s is 1, or k^-1/2 with FFN_CONV_SCALE_BY_TAPS. Kernel sizes of 1 make it
 * the position-wise layer, and give the bits of ffn_layer_run with the same engine.
 *
 *     conv_hidden_relu (tensor2tensor v1.0.14)        relu; separable where k is not 1; SAME, or LEFT in decoders; dropout site ACTIVATION
 *       ..._with_sepconv                              k 3 and 31, LEFT
 *     conv_relu_conv (tensor2tensor)                  relu; dense, k 3 and 1; FFN_CONV_SCALE_BY_TAPS; docs/convolution.md tells of its first tap
 *     FastSpeech, FastSpeech 2                        relu; dense, k 9 and 1, SAME; mask ALL; dropout site BRANCH
 *     ESPnet                                          relu; dense, k 3 and 3, SAME; dropout site ACTIVATION
 *     VITS                                            relu; dense, k 3 and 3, SAME (LEFT where it is causal); mask ALL; dropout site ACTIVATION
 *
 * Norms and the residual around it are the caller's. */

enum {
    FFN_CONV_SAME = 0, /* (k - 1) / 2 positions before, k / 2 behind: TensorFlow's SAME, of even sizes too */
    FFN_CONV_LEFT = 1  /* k - 1 positions before: causal */
};

/* Where the padding mask of a run makes zeros of positions. */
enum {
    FFN_CONV_MASK_TAPS = 0, /* in the input of each convolution whose k is not 1, whatever stands there: tensor2tensor's nonpadding_mask */
    FFN_CONV_MASK_ALL = 1   /* in the input of both, and in y. VITS; FastSpeech, whose y is zeroed */
};

/* options.flags */
enum {
    FFN_CONV_SCALE_BY_TAPS = 1, /* s = k^-1/2, for each convolution by its own k */
    FFN_CONV_TRAINABLE = 4      /* as FFN_LAYER_TRAINABLE */
};

typedef struct ffn_conv ffn_conv_t; /* weights and configuration; never changes but by ffn_conv_update; shared by threads */

typedef struct ffn_conv_options {
    uint32_t struct_size;       /* required: sizeof(ffn_conv_options_t) */
    uint32_t flags;             /* FFN_CONV_* or-ed */
    int64_t d_model;            /* width of x, d_ff of the hidden row, d_out of y: 1 to 2^29. 0: taken from the tensors, */
    int64_t d_ff;               /*   whose shapes must agree with each other and with a number given here */
    int64_t d_out;
    int64_t kernel_size;        /* k of the first convolution, */
    int64_t second_kernel_size; /*   and of the second: 1 to 1024, likewise */
    uint32_t padding;           /* FFN_CONV_SAME or FFN_CONV_LEFT, for both */
    uint32_t mask;              /* FFN_CONV_MASK_* */
    uint32_t activation;        /* required: FFN_ACTIVATION_* */
    float alpha;                /* as in ffn_layer_options_t */
    float beta;
    uint32_t engine;            /* FFN_ENGINE_*, as for a layer */
    uint32_t max_isa;           /* FFN_ISA_* */
    uint32_t reserved;          /* 0 */
    const ffn_tensor_t *tensors; /* required: each role at most once. Others than these are refused:
                                   UP_WEIGHT    [d_ff, d_model, k]   dense (PyTorch's Conv1d); [d_ff, d_model] where k is 1, and separable. Required
                                   DOWN_WEIGHT  [d_out, d_ff, k]     likewise. Required
                                   UP_TAPS      [d_model, k]         makes the first convolution separable
                                   DOWN_TAPS    [d_ff, k]            and the second
                                   UP_BIAS      [d_ff]
                                   DOWN_BIAS    [d_out]
                                   XIELU_*      as for a layer
                                   TensorFlow's [k, in, out] is stride {4, 4*out, 4*in*out}, its depthwise [k, 1, in, 1] stride {4, 4*in} */
    uint64_t tensor_count;
    const ffn_allocator_t *allocator; /* NULL: aligned_alloc and free. Copied */
} ffn_conv_options_t;

/* Makes a convolutional layer, as ffn_layer_create makes a layer. *conv is NULL on failure. A trainable one
 * has the blas engine (native is FFN_UNSUPPORTED), any other the one that a layer would have. Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_UNSUPPORTED, FFN_BUSY. */
FFN_API ffn_status_t ffn_conv_create(ffn_context_t *context, const ffn_conv_options_t *options, ffn_conv_t **conv);

/* Frees it. NULL is fine. No call may be using it. */
FFN_API void ffn_conv_free(ffn_conv_t *conv);

/* Allocates the scratch memory that runs and, of a trainable one, backward passes of up to batch * length positions need, and the room on the tape
 * (NULL: none) for recording them; what was recorded is lost. Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_UNSUPPORTED (a tape, but not trainable),
 * FFN_BUSY. */
FFN_API ffn_status_t ffn_conv_reserve(const ffn_conv_t *conv, ffn_context_t *context, ffn_tape_t *tape, int64_t batch, int64_t length);

typedef struct ffn_conv_run_t {
    uint32_t struct_size;       /* required: sizeof(ffn_conv_run_t) */
    uint32_t flags;             /* 0: none is defined yet */
    int64_t batch;              /* sequences, >= 0 */
    int64_t length;             /* positions of each, >= 0 */
    const void *x;              /* [batch, length, d_model] */
    void *y;                    /* [batch, length, d_out] */
    const uint8_t *mask;        /* [batch, length]: 0 where the position is padding. NULL: none is */
    int64_t x_stride[2];        /* as in ffn_run_t */
    int64_t y_stride[2];
    int64_t mask_stride;        /* bytes from sequence to sequence, at least length; 0: length */
    uint32_t x_dtype;           /* FFN_DTYPE_* */
    uint32_t y_dtype;
    const ffn_dropout_t *dropout; /* NULL: none. Only with a trainable one. All five sites; HIDDEN acts where ACTIVATION does */
    ffn_tape_t *tape;           /* NULL: no backward pass follows. Only with a trainable one */
    ffn_stats_t *stats;         /* NULL: nothing is counted. Else of the layer's d_ff, for at most 2^31 - 1 positions; y has the same bits (NaN is NaN) */
} ffn_conv_run_t;

/* Runs it. y must share no byte with x: a later position still reads what an earlier one has overwritten. The tape borrows x and mask, which must stay
 * as they are until ffn_conv_backward has read them. Dropout comes before the mask: what is padding is 0 either way.
 * Long sequences and many short ones go through in blocks of positions: scratch memory stops growing at some hundred, and k - 1 at each kernel.
 * The same bits for any number of threads of the context; with the native engine a sequence's bits also do not depend on the rest of the batch.
 * Statuses: as ffn_layer_run. */
FFN_API ffn_status_t ffn_conv_run(const ffn_conv_t *conv, ffn_context_t *context, const ffn_conv_run_t *run);

typedef struct ffn_conv_info_t {
    uint32_t struct_size;       /* set by the caller: sizeof(ffn_conv_info_t) */
    uint32_t flags;             /* as in the options */
    int64_t d_model;
    int64_t d_ff;
    int64_t d_out;
    int64_t kernel_size;
    int64_t second_kernel_size;
    uint32_t separable;         /* 1: the first convolution, 2: the second; 3: both */
    uint32_t padding;           /* as in the options */
    uint32_t mask;
    uint32_t activation;
    uint32_t engine;            /* as resolved: never AUTO */
    uint32_t isa;               /* as resolved: never AUTO */
    int64_t parameters;         /* numbers in all tensors given */
    int64_t parameters_of[64];  /* by role */
    uint64_t bytes;             /* memory that it holds */
} ffn_conv_info_t;

/* Writes what it is to *info: as many bytes as both sides know. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_conv_info(const ffn_conv_t *conv, ffn_conv_info_t *info);

/* Gives tensors back, as ffn_layer_read; here the ranges of two views must be apart. Statuses: FFN_INVALID, FFN_UNSUPPORTED. */
FFN_API ffn_status_t ffn_conv_read(const ffn_conv_t *conv, const ffn_tensor_t *tensors, uint64_t tensor_count);

/* The backward pass of the ffn_conv_run on the tape, as ffn_layer_backward: the exact derivatives by x and by each tensor that has a view in `gradients`,
 * through the same dropout and mask (at padding, what the mask made zero has the derivative 0). d_residual and moe must be NULL. d_x must be apart from
 * d_y too, and the ranges of two gradients from each other. Layouts: a weight of which each tap's rows or columns are dense is written in place; any other,
 * [out, in, k] without gaps among them where k is not 1, goes through scratch memory of its size.
 * Statuses: as ffn_layer_backward. */
FFN_API ffn_status_t ffn_conv_backward(const ffn_conv_t *conv, ffn_context_t *context, const ffn_backward_t *backward);

/* Puts new values of some tensors into a trainable one, as ffn_layer_update. Statuses: FFN_INVALID, FFN_NO_MEMORY (a thread's first call),
 * FFN_UNSUPPORTED, FFN_BUSY. */
FFN_API ffn_status_t ffn_conv_update(ffn_conv_t *conv, ffn_context_t *context, const ffn_tensor_t *tensors, uint64_t tensor_count);
/* ------------------------------------------------------------------ Health */

/* What the hidden units of a layer do, counted while it runs (ffn_run_t.stats, ffn_conv_run_t.stats), in training and in inference, at a cost that allows leaving it on
 * (docs/training-health.md has the measured one).
 *
 * A unit's activation at a position (a row of the run) is the value of the activation function, its clip included:
 *     dense  a = act(W_up x + b_up)        gated  a = act(min(W_gate x + b_gate, gate_max)), before the product with the other branch
 *     convolutional  a = act(CONV1(x)), which is dense or separable; padding (the run's mask is 0) is no position
 * after dropout at PRE_ACTIVATION, which changes the argument, and before every other dropout and NORM_MID: what is dropped says nothing of the unit.
 * (tensor2tensor's summary of this name looks behind relu_dropout, and sees 1 - p of the density.)
 *
 * In a mixture of experts unit j of expert e is number e * d_ff + j, unit j of the shared experts experts * d_ff + j. Their positions are those that they
 * computed: of an expert the tokens that came to it (what a capacity dropped did not; identity experts have no units), of the shared ones all tokens but
 * padding. So a unit is judged by what its expert saw, and an expert that saw nothing has no density (NaN) and no dead units: its units are unseen.
 * Whether that is too many is for ffn_moe_statistics_t.idle_experts and the load to say, which is the router's business and not the unit's.
 *
 * positive, of a unit: the positions where a, a float, is > 0: NaN is not, +infinity is. density f: positive / positions. A unit is dead when it has none.
 * hidden_density_logit of a unit: log(f + e^-10) - log(1 - f + e^-10) (tensor2tensor's relu_density_logit), from -10.0000454 (dead) over 0 (half of
 * the positions) to 10.0000454 (always on). Without a position f, its logit and the means are NaN, and no unit is dead, but unseen.
 *
 * Sums are integers: |a| below 2^13 is rounded to a multiple of 2^-32 (halves to even) before it is added, everything else is exact. So what is read
 * does not depend on the number of threads, the order of runs, their cut or ffn_stats_merge, but as the layer's own bits do. */
typedef struct ffn_stats_options {
    uint32_t struct_size; /* required: sizeof(ffn_stats_options_t) */
    uint32_t flags;       /* 0: none is defined yet */
    int64_t d_ff;         /* required: hidden units of the layers that it will count for, 1 to 2^29 */
    const ffn_allocator_t *allocator; /* NULL: aligned_alloc and free. Copied */
    int64_t experts;      /* of mixtures, with weights: 0 to FFN_MOE_EXPERTS_MOST; d_ff is that of each. 0: dense and convolutional layers */
    int64_t d_shared;     /* of mixtures: hidden width of the shared experts, 0 to 2^29. 0: none */
} ffn_stats_options_t;

/* Makes a handle that has counted nothing; it allocates nothing later. Runs add to it until ffn_stats_reset; a run that fails adds nothing. One call at
 * a time may use it: threads that run a layer at once have a handle each, and ffn_stats_merge adds them up. *stats is NULL on failure.
 * Statuses: FFN_INVALID, FFN_NO_MEMORY, FFN_UNSUPPORTED. */
FFN_API ffn_status_t ffn_stats_create(const ffn_stats_options_t *options, ffn_stats_t **stats);
FFN_API void ffn_stats_free(ffn_stats_t *stats); /* NULL is fine */

/* Back to having counted nothing. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_stats_reset(ffn_stats_t *stats);

/* Adds what `from`, another handle of the same d_ff, experts and d_shared, has counted. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_stats_merge(ffn_stats_t *stats, const ffn_stats_t *from);

typedef struct ffn_stats_info_t {
    uint32_t struct_size; /* set by the caller: sizeof(ffn_stats_info_t) */
    uint32_t flags;       /* 0 */
    int64_t d_ff;
    int64_t positions;    /* counted so far; of a mixture: of all experts, and of the shared ones, together */
    int64_t positive;     /* activations > 0 */
    int64_t non_finite;   /* activations that are infinite or NaN */
    int64_t dead_units;   /* units that were never > 0, and had a position */
    double density;       /* positive / activations */
    double mean;          /* of |activation|, over the finite ones; NaN if there is none */
    double largest;       /* |activation|, of the finite ones; 0 if there is none */
    int64_t experts;      /* as in the options */
    int64_t d_shared;
    int64_t units;        /* d_ff, of a mixture experts * d_ff + d_shared */
    int64_t activations;  /* counted so far: for each unit its positions */
    int64_t unseen_units; /* units that had no position */
} ffn_stats_info_t;

/* Writes the sums over all units to *info: as many bytes as both sides know; what only a newer caller knows becomes 0. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_stats_info(const ffn_stats_t *stats, ffn_stats_info_t *info);

/* Unit by unit: positive[j], density[j], density_logit[j], arrays of info.units. Each may be NULL. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_stats_units(const ffn_stats_t *stats, int64_t *positive, double *density, double *density_logit);

/* Expert by expert, the shared ones behind the others: arrays of experts, and one more with d_shared; of a dense layer of 1. positions[e] that it
 * computed, density[e] over all of its units (NaN without a position), its dead_units[e]. Each may be NULL. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_stats_experts(const ffn_stats_t *stats, int64_t *positions, double *density, int64_t *dead_units);

/* The histogram of hidden_density_logit: counts[i] = the units with edges[i] <= logit < edges[i + 1], the last bin with its upper edge.
 *   bins    1 to 2^20
 *   edges   [bins + 1], ascending, infinite ones too; units outside of them count nowhere. NULL: bins of equal width over -10.0000454 to 10.0000454,
 *           in which every unit is that had a position
 *   counts  [bins], written. Unseen units are in none
 * Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_stats_histogram(const ffn_stats_t *stats, int64_t bins, const double *edges, int64_t *counts);

typedef struct ffn_tensor_health_t {
    uint32_t struct_size; /* set by the caller: sizeof(ffn_tensor_health_t) */
    uint32_t flags;       /* 0 */
    int64_t count;        /* numbers in the tensor */
    int64_t zeros;        /* 0 and -0 */
    int64_t non_finite;   /* infinities and NaN */
    double norm;          /* sqrt(the sum of squares), as ffn_clip_global_norm has it: infinite or NaN where a number is */
    double largest;       /* |number|, of the finite ones; 0 if there is none */
} ffn_tensor_health_t;

/* Looks at the numbers of a tensor, through its strides: a weight, a gradient, an update. role and expert are not looked at; ndim 1 to 4, shape from 0
 * on; data may be NULL where there is no number. Squares are summed in float64, where no float overflows, in an order that the shape alone decides:
 * the same bits for any strides and number of threads, at one ISA level. The context's threads help; NULL: the calling thread alone. Writes as many
 * bytes of *health as both sides know. Statuses: FFN_INVALID, FFN_NO_MEMORY (scratch memory), FFN_UNSUPPORTED (a dtype), FFN_BUSY. */
FFN_API ffn_status_t ffn_tensor_health(ffn_context_t *context, const ffn_tensor_t *tensor, ffn_tensor_health_t *health);

/* *ratio = norm(after - before) / norm(before), differences and sums in float64: how far a step moved a tensor, 1e-3 being usual in training. 0 where
 * nothing moved, infinite where something moved away from zeros, NaN or infinite where a number is. (Of an update that is an array of its own, divide
 * two norms of ffn_tensor_health.) The tensors have one shape; strides as there. *ratio is 0 on failure. Statuses: as ffn_tensor_health. */
FFN_API ffn_status_t ffn_update_ratio(ffn_context_t *context, const ffn_tensor_t *before, const ffn_tensor_t *after, double *ratio);

/* --------------------------------------------- Mixture of experts: routing */

/* A router chooses, for each token, top_k of `experts` experts and a weight for each. It takes one call from logits (ffn_moe_route), two from hidden
 * states (ffn_moe_logits before it). With z a token's row of logits:
 *
 *     s = SCORE(z)                                  per expert
 *     c = s + selection_bias                        what the choice is by; the bias is in no weight
 *     groups: experts of all but the top_groups best groups are out of the choice
 *     ids = the top_k experts with the largest c    in descending order of c; of equal ones the lowest id first, always
 *     w = s of the chosen, or the softmax or sigmoid of their z
 *     w = w / max(NORM(w) + eps_added, eps_least)
 *     w = w * scale * expert_scale[id]
 *
 * Mixtral: all defaults but normalise SUM. DeepSeek-V3: score SIGMOID, 8 groups by TOP2_SUM of which 4 stay, normalise SUM, eps_added 1e-20, scale
 * 2.5, a selection bias. gpt-oss: score NONE, weight SOFTMAX. Llama-4: score NONE, weight SIGMOID (to multiply the expert's input). docs/routing.md
 * has the options of every published family.
 *
 * s and w are computed in float64 and rounded to float32 once each (c is a sum of float32): the same bits at every ISA level, with every number of
 * threads, and whatever the other tokens are. Scores of -inf are never ahead of others; nor is NaN, which comes last.
 * A row with a NaN or of -inf alone, or one whose scores are no numbers (softmax of +inf), gets top_k distinct valid ids like any other, and NaN for
 * each of its weights. Other rows do not change.
 *
 * Arrays are contiguous, row after row, and must not overlap each other. */

enum { FFN_MOE_EXPERTS_MOST = 768 }; /* LongCat-Flash: 512 experts and 256 identities */

/* An id that stands for no expert: a dropped choice, a slot that is not used, a token of padding. Its weight is 0. */
enum { FFN_MOE_NO_EXPERT = -1 };

/* Which experts each token goes to, and with which weights: what the functions below make and change. `struct_size`, the sizes and the pointers are
 * the caller's, the contents of ids and weights the functions'. */
typedef struct ffn_moe_routing {
    uint32_t struct_size; /* required: sizeof(ffn_moe_routing_t) */
    uint32_t flags;       /* 0: none is defined yet */
    int64_t tokens;       /* 0 to 2^31 - 1. 0: nothing is done, and no pointer looked at */
    int64_t experts;      /* 1 to FFN_MOE_EXPERTS_MOST */
    int64_t top_k;        /* 1 to experts: choices of a token */
    int32_t *ids;         /* [tokens, top_k]  0 to experts - 1, distinct in a row, or FFN_MOE_NO_EXPERT. First choices first */
    float *weights;       /* [tokens, top_k] */
    const uint8_t *mask;  /* [tokens]  0: padding, which goes to no expert and counts for nothing. NULL: all tokens count */
} ffn_moe_routing_t;

/* s, of a row's logits z. */
enum {
    FFN_MOE_SCORE_SOFTMAX = 0,
    FFN_MOE_SCORE_SIGMOID = 1,
    FFN_MOE_SCORE_SQRT_SOFTPLUS = 2, /* sqrt(log(1 + e^z)): DeepSeek-V4 */
    FFN_MOE_SCORE_NONE = 3           /* z itself */
};

/* The score of a group: the largest c of its experts (DeepSeek-V2), or the sum of the two largest (DeepSeek-V3). */
enum { FFN_MOE_GROUP_MAX = 0, FFN_MOE_GROUP_TOP2_SUM = 1 };

/* w, before it is normalised. */
enum {
    FFN_MOE_WEIGHT_SCORE = 0,   /* s of the chosen expert, without the selection bias */
    FFN_MOE_WEIGHT_SOFTMAX = 1, /* softmax over the logits of the chosen experts: Granite, JetMoE, Aria, gpt-oss */
    FFN_MOE_WEIGHT_SIGMOID = 2  /* sigmoid of the chosen expert's logit: Llama-4 */
};

/* NORM(w), over a token's weights. */
enum {
    FFN_MOE_NORMALISE_NONE = 0, /* the division is left out */
    FFN_MOE_NORMALISE_SUM = 1,
    FFN_MOE_NORMALISE_POWER = 2 /* (sum of |w|^p)^(1/p), p = norm_power: DBRX */
};

/* options.flags of ffn_moe_route */
enum { FFN_MOE_GIVEN_IDS = 1 }; /* ids are read, not chosen: by hash, by a helper below, or after some were dropped */

typedef struct ffn_moe_router_options {
    uint32_t struct_size; /* required: sizeof(ffn_moe_router_options_t) */
    uint32_t flags;       /* FFN_MOE_GIVEN_IDS or 0 */
    uint32_t score;       /* FFN_MOE_SCORE_* */
    uint32_t weight;      /* FFN_MOE_WEIGHT_* */
    uint32_t normalise;   /* FFN_MOE_NORMALISE_* */
    uint32_t group_score; /* FFN_MOE_GROUP_*, with groups */
    int64_t groups;       /* of experts, equally many in each, in the order of ids. 0 or 1: none */
    int64_t top_groups;   /* groups that stay, 1 to groups; 0 without groups. They must hold top_k experts */
    float norm_power;     /* p > 0, also infinity (the largest |w|), with NORMALISE_POWER; else 0 */
    float eps_added;      /* >= 0, finite; 0 without normalisation. 1e-20: DeepSeek-V3, AFMoE; 1e-6: LFM2; 1e-9: GShard */
    float eps_least;      /* likewise. 1e-12: ERNIE-4.5; 1.1920929e-7: NLLB */
    float scale;          /* finite. 0: 1. DeepSeek's routed_scaling_factor */
} ffn_moe_router_options_t;

/* Routes. options NULL: all defaults.
 *   logits          [tokens, experts]
 *   selection_bias  [experts]  or NULL: 0. DeepSeek-V3's e_score_correction_bias
 *   expert_scale    [experts]  or NULL: 1. Gemma-4's per_expert_scale
 *   scores          [tokens, experts]  s, written for every token, for the losses below; NULL: not wanted
 *   routing         ids and weights are written. With FFN_MOE_GIVEN_IDS ids are read, and groups and selection_bias must be absent; slots of
 *                   FFN_MOE_NO_EXPERT count in no sum: after one of two choices was dropped, the other's normalised weight is 1 (NLLB)
 * The context's threads help. Statuses: FFN_INVALID, FFN_UNSUPPORTED (unknown fields of a larger struct), FFN_NO_MEMORY (context NULL, in a thread's
 * first call), FFN_BUSY. */
FFN_API ffn_status_t ffn_moe_route(ffn_context_t *context, const ffn_moe_router_options_t *options, const float *logits,
                                   const float *selection_bias, const float *expert_scale, float *scores, const ffn_moe_routing_t *routing);

/* The router's matrix, and the norm that a few families have before it. */
typedef struct ffn_moe_logits_options {
    uint32_t struct_size;     /* required: sizeof(ffn_moe_logits_options_t) */
    uint32_t flags;           /* 0: none is defined yet */
    int64_t d_model;          /* 1 to 2^29 */
    int64_t experts;          /* 1 to FFN_MOE_EXPERTS_MOST */
    const float *weight;      /* required: [experts, d_model] */
    int64_t weight_stride[2]; /* bytes from expert to expert and from input to input, positive; both 0: contiguous. {4, 4 * experts}: [d_model, experts] */
    const float *bias;        /* [experts] or NULL: 0. gpt-oss */
    uint32_t norm;            /* FFN_NORM_NONE, FFN_NORM_LAYER or FFN_NORM_RMS: of x, before the matrix */
    float norm_eps;           /* as in ffn_layer_options_t */
    const float *norm_weight; /* [d_model] or NULL: 1. Gemma-4: RMS, with router.scale / sqrt(d_model) */
} ffn_moe_logits_options_t;

/* logits[t] = weight norm(x[t]) + bias, for t = 0 .. tokens-1, in float32.
 *   x       [tokens, d_model], rows dense, row t at (char *)x + t * x_stride; x_stride in bytes as in ffn_layer_forward
 *   logits  [tokens, experts]
 * On the native engine's products: a token's bits depend on the token, the weights and the ISA level alone. The weights are packed in every call.
 * Statuses: as ffn_moe_route, and FFN_NO_MEMORY (scratch memory). */
FFN_API ffn_status_t ffn_moe_logits(ffn_context_t *context, const ffn_moe_logits_options_t *options, int64_t tokens, const float *x,
                                    int64_t x_stride, float *logits);

/* SparseMixer, of PhiMoE (arXiv 2409.12136), for top_k 2: writes ids and weights. First choice: the largest logit m; experts with
 * (m - z_e) / max(|z_e|, m) > 2 jitter_eps drop out, and the weight is the softmax over those left. Second choice: the same without the first, m being
 * the largest of the rest. The weights do not add up to 1: often both are 1. jitter_eps is the model's router_jitter_noise, 0.01: finite, >= 0. It is
 * in force at inference too. Rows that are no numbers as in ffn_moe_route. At least 2 experts. Statuses: as ffn_moe_route. */
FFN_API ffn_status_t ffn_moe_sparse_mixer(ffn_context_t *context, float jitter_eps, const float *logits, const ffn_moe_routing_t *routing);

/* Expert choice (arXiv 2202.09368): in each group of group_tokens tokens (0: all in one; the last group may be shorter), each expert takes the
 * `capacity` tokens (all, if there are fewer) with the largest scores for it, of equal ones the first. A token's slots are its experts in ascending
 * order, with their scores as weights; those left over are FFN_MOE_NO_EXPERT. capacity >= 1.
 *   scores  [tokens, experts], as ffn_moe_route writes them. NaN is taken last, and makes the weight NaN
 * A token that more than top_k experts choose is FFN_INVALID (top_k = experts always suffices). Statuses: FFN_INVALID, FFN_NO_MEMORY (scratch memory),
 * FFN_BUSY. */
FFN_API ffn_status_t ffn_moe_expert_choice(ffn_context_t *context, int64_t capacity, int64_t group_tokens, const float *scores,
                                           const ffn_moe_routing_t *routing);

/* Hash routing (Hash Layers, arXiv 2106.04426; the first layers of DeepSeek-V4): the ids of token t are row token_ids[t] of a fixed table. Writes ids
 * alone; ffn_moe_route with FFN_MOE_GIVEN_IDS then makes the weights.
 *   token_ids  [tokens]             0 to vocabulary - 1 (not looked at for padding)
 *   table      [vocabulary, top_k]  ids as in a routing
 * Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_moe_hash(const int64_t *token_ids, int64_t vocabulary, const int32_t *table, const ffn_moe_routing_t *routing);

/* What becomes of second choices, top_k being 2 (GShard, arXiv 2006.16668, and NLLB). w is the second weight as it stands in the routing. */
enum {
    FFN_MOE_SECOND_NONE = 1,      /* all are dropped */
    FFN_MOE_SECOND_THRESHOLD = 2, /* kept if w > threshold */
    FFN_MOE_SECOND_RANDOM = 3,    /* kept with probability min(1, w / threshold): GShard's threshold is 0.2, NLLB's 0.5. With w NaN dropped */
    FFN_MOE_SECOND_SAMPLED = 4    /* NLLB's "sampling": chosen anew from the logits, before the weights are made */
};

typedef struct ffn_moe_second_options {
    uint32_t struct_size; /* required: sizeof(ffn_moe_second_options_t) */
    uint32_t flags;       /* 0: none is defined yet */
    uint32_t policy;      /* required: FFN_MOE_SECOND_* */
    float threshold;      /* > 0, finite, with THRESHOLD and RANDOM; else 0 */
    uint64_t seed;        /* of RANDOM and SAMPLED, as in ffn_init_options_t */
    uint64_t stream;      /* 0 to 2^32 - 1: which layer and step. Streams with different numbers are independent */
    int64_t first_token;  /* 0 to 2^63 / FFN_MOE_EXPERTS_MOST - 2^31: the number of the first token, where a batch is routed in parts */
} ffn_moe_second_options_t;

/* Applies a policy. NONE, THRESHOLD, RANDOM: the second choices that are not kept become FFN_MOE_NO_EXPERT with weight 0; first choices and weights
 * stay as they are (renormalise with FFN_MOE_GIVEN_IDS, if the family does). logits is not looked at.
 * SAMPLED: writes both ids: the first is the largest logit's, the second that of the largest logit + Gumbel noise among the rest; weights are not
 * looked at, ffn_moe_route with FFN_MOE_GIVEN_IDS makes them. logits [tokens, experts].
 * The random number of token t is word i % 4 of Philox 4x32-10 with the key `seed` and the counter (i / 4 mod 2^32, i / 2^34, stream, 0xffff0001), with
 * i = first_token + t for RANDOM and (first_token + t) * experts + e for expert e's noise, made a number u in (0, 1) as (word + 1/2) / 2^32; the noise
 * is -log(-log(u)). Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_moe_second_expert(const ffn_moe_second_options_t *options, const float *logits, const ffn_moe_routing_t *routing);

/* Which choices stay, where an expert takes no more than so many tokens. */
enum {
    FFN_MOE_DROP_POSITION = 0,   /* the first ones in the order of tokens: all first choices, then all second ones, ... Switch, GShard */
    FFN_MOE_DROP_PRIORITY = 1,   /* likewise, tokens in descending order of their first weight: batch prioritised routing, V-MoE (arXiv 2106.05974) */
    FFN_MOE_DROP_PROBABILITY = 2 /* those with the largest weights, whichever choice they are: Megatron's "probs" */
};

/* How a capacity by factor is rounded. */
enum {
    FFN_MOE_ROUND_DOWN = 0,    /* of factor * N / E: Mesh TensorFlow's Switch and GShard */
    FFN_MOE_ROUND_NEAREST = 1, /* of factor * N / E, halves to even: Flaxformer */
    FFN_MOE_ROUND_UP = 2       /* of N / E * factor: Megatron */
};

/* options.flags of ffn_moe_limit */
enum { FFN_MOE_CAPACITY_PER_CHOICE = 1 }; /* N is tokens * top_k: Megatron. Else it is tokens */

typedef struct ffn_moe_capacity_options {
    uint32_t struct_size; /* required: sizeof(ffn_moe_capacity_options_t) */
    uint32_t flags;       /* FFN_MOE_CAPACITY_PER_CHOICE or 0 */
    uint32_t drop;        /* FFN_MOE_DROP_* */
    uint32_t rounding;    /* FFN_MOE_ROUND_*, with factor; else 0 */
    int64_t capacity;     /* fixed, >= 1 (Hugging Face's Switch: expert_capacity). 0: by factor */
    int64_t minimum;      /* of the capacity by factor, >= 0. Mesh TensorFlow and Flaxformer: 4 */
    int64_t group_tokens; /* tokens that a capacity is for, >= 0: a sequence, a group. 0: all. The last group may be shorter */
    double factor;        /* > 0, finite, if capacity is 0; else 0. In float64: 1.1 is not what it is in float32, and rounding down would show it */
} ffn_moe_capacity_options_t;

/* Limits each expert to its capacity, group by group: choices beyond it become FFN_MOE_NO_EXPERT with weight 0, so that a token of which nothing is
 * left is its residual only. The other weights stay as they are. Padding takes no place, nor do slots of no expert. Equal weights: the earlier choice
 * first, then the earlier token; NaN is the smallest. Statuses: FFN_INVALID, FFN_NO_MEMORY (scratch memory), FFN_BUSY. */
FFN_API ffn_status_t ffn_moe_limit(ffn_context_t *context, const ffn_moe_capacity_options_t *options, const ffn_moe_routing_t *routing);

/* ----------------------------------------------- Mixture of experts: noise */

/* Where noise acts in training: numbers of sites in the streams of dropout, behind its own. */
enum {
    FFN_MOE_SITE_INPUT = 5,  /* jitter of the router's input, or of the whole block's: Switch (0.01), Mixtral (router_jitter_noise) */
    FFN_MOE_SITE_LOGITS = 6, /* jitter of logits */
    FFN_MOE_SITE_NOISE = 7,  /* normal noise added to logits */
    FFN_MOE_SITE_CHOICE = 8  /* SparseMixer's choices: ffn_moe_sparse_mixer_sample */
};

/* What is drawn is a function of the fields below and the number's place alone: the same for any number of threads, batch split (first_row) and ISA
 * level, and drawn again in the backward pass. The number in column j of row r is word w = j % 4 of Philox 4x32-10 with the key `seed` and the counter
 *     ( site * 2^28 + j / 4,  r mod 2^32,  step,  layer * 2^16 + r / 2^32 )
 * as for dropout, with r = first_row + the row's number in the call, made u = (w + 1/2) / 2^32, in (0, 1). */
typedef struct ffn_moe_noise {
    uint32_t struct_size; /* required: sizeof(ffn_moe_noise_t) */
    uint32_t site;        /* required: FFN_MOE_SITE_* */
    uint64_t seed;        /* any number */
    uint64_t step;        /* of training: 0 to 2^32 - 1 */
    uint64_t layer;       /* number of the layer in the model: 0 to 65534 */
    int64_t first_row;    /* number of the call's first row, >= 0; rows end at 2^48 */
    float size;           /* finite, >= 0: jitter's epsilon, at most 1, or a standard deviation. 0 leaves alone, to the bit */
    uint32_t reserved;    /* 0 */
} ffn_moe_noise_t;

/* Jitter: out[r][j] = in[r][j] * (1 + size * (2 u - 1)), the factor in float64, rounded once; site INPUT or LOGITS.
 *   in, out  [rows, width], rows dense, with strides in bytes as in ffn_layer_forward; rows 0 to 2^31 - 1, width 1 to 2^29
 * out may be in exactly. The backward pass is the same call on derivatives: d_in = jitter of d_out. Where the experts see the jitter too (Mixtral, DBRX,
 * Hugging Face's Switch), it is the layer's x that is jittered; else (Mesh TensorFlow, Flaxformer) a copy of it, for ffn_moe_logits.
 * Statuses: FFN_INVALID, FFN_UNSUPPORTED, FFN_NO_MEMORY (context NULL, in a thread's first call), FFN_BUSY. */
FFN_API ffn_status_t ffn_moe_jitter(ffn_context_t *context, const ffn_moe_noise_t *noise, int64_t rows, int64_t width, const float *in,
                                    int64_t in_stride, float *out, int64_t out_stride);

/* Noise on logits: logits[t][e] += (size + softplus(noise_logits[t][e])) * z, z the number whose normal distribution is u; in float64, rounded once.
 * noise_logits NULL: logits += size * z. site NOISE.
 *   noise_logits  [tokens, experts]  ffn_moe_logits with a second matrix: noisy top-k gating, Shazeer et al., arXiv 1701.06538 (size 0; tensor2tensor's
 *                 noise_epsilon is size 0.01). Without it V-MoE's noise, arXiv 2106.05974: size 1 / experts
 *   logits        [tokens, experts]  changed in place
 * The derivatives by the logits go through unchanged. Statuses as ffn_moe_jitter. */
FFN_API ffn_status_t ffn_moe_add_noise(ffn_context_t *context, const ffn_moe_noise_t *noise, int64_t tokens, int64_t experts,
                                       const float *noise_logits, float *logits);

/* d_noise_logits[t][e] = d_logits[t][e] * z * sigmoid(noise_logits[t][e]), with the z of ffn_moe_add_noise; written. All [tokens, experts]. */
FFN_API ffn_status_t ffn_moe_add_noise_backward(ffn_context_t *context, const ffn_moe_noise_t *noise, int64_t tokens, int64_t experts,
                                                const float *noise_logits, const float *d_logits, float *d_noise_logits);

/* SparseMixer as it is trained (arXiv 2310.00811): ffn_moe_sparse_mixer with choices by chance. The experts that drop out are the same, and p is the softmax over
 * those left; the choice is the largest of z_e + G_e among them, which is each with probability p_e. The weight is p of the choice, or a third of that:
 * whole where the choice has the largest logit of those left, and else with probability 1/4 (the two points of Heun's method of third order). The second
 * choice goes without the first as it was drawn.
 *   noise  site CHOICE, size 0. Of choice k (0 or 1) column 2^16 k + e is the u of expert e, G = -log(-log(u)); with that of column 2^16 k + 2^15 below
 *          1/4 the weight is whole
 * A layer trains with it as with any routing that a run brings: docs/routing.md. Rows that are no numbers as in ffn_moe_route. Statuses: as
 * ffn_moe_jitter. */
FFN_API ffn_status_t ffn_moe_sparse_mixer_sample(ffn_context_t *context, const ffn_moe_noise_t *noise, float jitter_eps, const float *logits,
                                                 const ffn_moe_routing_t *routing);

/* -------------------------------------------- Mixture of experts: backward */

/* From the derivatives of the loss by the weights of a routing back to those by the router's tensors and its input: ffn_moe_route_backward, then
 * ffn_moe_logits_backward. The losses' own gradients enter on the way: by scores as d_scores, by logits (ffn_moe_loss_z) in d_logits itself, before
 * (with FFN_BACKWARD_ACCUMULATE) or after.
 *
 * Which experts are chosen is a constant: no derivative goes through the order of scores, groups, the selection bias, capacity, hash tables, policies of
 * second choices, or which tokens an expert chooses. A weight of 0 has one nonetheless. Where a maximum decides (eps_least, norm_power infinity), the
 * derivative is that of what is in force; |w|^p has none at w = 0, and 0 is taken. */

typedef struct ffn_moe_route_gradients {
    uint32_t struct_size;    /* required: sizeof(ffn_moe_route_gradients_t) */
    uint32_t flags;          /* FFN_BACKWARD_ACCUMULATE: the results are added to what their arrays hold; or 0: they are written */
    const float *d_weights;  /* [tokens, top_k]    by the weights; of slots without an expert not looked at. NULL: 0 */
    const float *d_scores;   /* [tokens, experts]  by the scores that ffn_moe_route gave: the load-balancing losses' gradients. NULL: 0 */
    float *d_logits;         /* [tokens, experts]  required. Rows of padding are 0 */
    float *d_expert_scale;   /* [experts]          NULL: not wanted */
} ffn_moe_route_gradients_t;

/* The backward pass of ffn_moe_route: options, logits, expert_scale and routing as they were there. Of the routing, ids and mask are read: the ids by
 * which the weights were made. Where choices were dropped after weights had been normalised (ffn_moe_limit), those are the ids from before, with d_weights
 * of 0 at what was dropped; where they were not normalised, either do.
 * Expert choice is SCORE weights without normalisation, on its own ids. Hash routing and NLLB's second pass are FFN_MOE_GIVEN_IDS, as forwards.
 * In float64, rounded once: the same bits at every ISA level, with every number of threads, and whatever the other tokens are; d_expert_scale's sum over
 * tokens is in float64 too. A row that is no numbers to ffn_moe_route has NaN for each of its logits.
 * With 0 tokens d_expert_scale is 0. Statuses: FFN_INVALID, FFN_UNSUPPORTED, FFN_NO_MEMORY (scratch memory, with d_expert_scale; context NULL, in a
 * thread's first call), FFN_BUSY. */
FFN_API ffn_status_t ffn_moe_route_backward(ffn_context_t *context, const ffn_moe_router_options_t *options, const float *logits,
                                            const float *expert_scale, const ffn_moe_routing_t *routing,
                                            const ffn_moe_route_gradients_t *gradients);

/* The same for ffn_moe_sparse_mixer: each weight is a softmax over the experts that did not drop out, and has its derivative, w (1 at the choice - p).
 * Of ffn_moe_sparse_mixer_sample too, whose ids may be others than the largest logits': the published estimate, which is the derivative of p also where
 * the weight is a third of it. d_weights is required, d_scores and d_expert_scale are NULL. Where a choice was dropped since, the ids must be those from
 * before, if they were drawn. An id that is not among the experts that did not drop out has no derivative. Statuses likewise. */
FFN_API ffn_status_t ffn_moe_sparse_mixer_backward(ffn_context_t *context, float jitter_eps, const float *logits, const ffn_moe_routing_t *routing,
                                                   const ffn_moe_route_gradients_t *gradients);

/* flags of ffn_moe_logits_gradients_t, beside FFN_BACKWARD_ACCUMULATE */
enum { FFN_MOE_ADD_D_X = 2 }; /* d_x is added to: to the experts' share of it */

typedef struct ffn_moe_logits_gradients {
    uint32_t struct_size;    /* required: sizeof(ffn_moe_logits_gradients_t) */
    uint32_t flags;          /* FFN_BACKWARD_ACCUMULATE (of the three tensors), FFN_MOE_ADD_D_X, or-ed; or 0 */
    const float *d_logits;   /* [tokens, experts]   required */
    float *d_x;              /* [tokens, d_model]   NULL: not wanted, likewise below */
    int64_t d_x_stride;      /* bytes, as x_stride */
    float *d_weight;         /* [experts, d_model] */
    int64_t d_weight_stride[2]; /* as weight_stride */
    float *d_bias;           /* [experts] */
    float *d_norm_weight;    /* [d_model]           only with a norm */
} ffn_moe_logits_gradients_t;

/* The backward pass of ffn_moe_logits: options and x as they were there (bias is not looked at). Products by sgemm, sums as in ffn_layer_backward: the same
 * bits for any number of threads of the context, at a fixed number of BLAS threads. With 0 tokens the tensors' gradients are 0.
 * Statuses: FFN_INVALID, FFN_UNSUPPORTED, FFN_NO_MEMORY, FFN_BUSY. */
FFN_API ffn_status_t ffn_moe_logits_backward(ffn_context_t *context, const ffn_moe_logits_options_t *options, int64_t tokens, const float *x,
                                             int64_t x_stride, const ffn_moe_logits_gradients_t *gradients);

/* ---------------------------------------------- Mixture of experts: losses */

/* Tokens per expert: counts[g][e] = the tokens of group g (group_tokens tokens each, the last may have fewer; 0: all are one group) whose first `choices`
 * slots (0: all) hold expert e. Padding and FFN_MOE_NO_EXPERT count nowhere: count before capacity drops choices, if the loss is over what was asked
 * for. weights is not looked at.
 *   counts  [groups, experts], groups = tokens / group_tokens rounded up. Written; with 0 tokens and group_tokens 0 one row of zeros
 * Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_moe_count(const ffn_moe_routing_t *routing, int64_t group_tokens, int64_t choices, int64_t *counts);

typedef struct ffn_moe_statistics_t {
    uint32_t struct_size;  /* set by the caller: sizeof(ffn_moe_statistics_t) */
    uint32_t flags;        /* 0 */
    int64_t tokens;        /* that are no padding */
    int64_t assignments;   /* choices that stand: the sum of the counts */
    int64_t dropped;       /* tokens * top_k - assignments */
    int64_t lost_tokens;   /* tokens without any expert */
    int64_t idle_experts;  /* experts without a token */
    int64_t largest_load;  /* tokens of the busiest expert */
    double load_entropy;   /* of the experts' shares of the assignments, in nats: log(experts) when balanced, 0 when one has all, and without any */
    double router_entropy; /* the mean over tokens of the entropy of their scores (divided by their sum), in nats. 0 without scores or tokens */
} ffn_moe_statistics_t;

/* Writes what a routing amounts to: as many bytes as both sides know. scores [tokens, experts], as ffn_moe_route writes them, or NULL; a NaN among them
 * makes router_entropy NaN. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_moe_statistics(const ffn_moe_routing_t *routing, const float *scores, ffn_moe_statistics_t *statistics);

/* The load-balancing losses, which are not the same. With groups of N tokens, n_e the count of expert e in a group, P_e the mean of its probability
 * over the group's tokens, E experts, K choices per token, c the coefficient:
 *
 *   switch        c mean over groups of E sum_e (n_e / N) P_e           balanced: c K    Fedus et al., arXiv 2101.03961 (K = 1); Flaxformer, NLLB
 *   gshard        likewise, n_e counting first choices alone            balanced: c      Lepikhin et al., arXiv 2006.16668; Mesh TensorFlow
 *   huggingface   c E sum_e (n_e / N) P_e over all tokens at once       balanced: c K    Mixtral, Qwen, OLMoE, gpt-oss, DBRX, ... in Transformers
 *   megatron      c E / (K N^2) sum_e n_e (sum_t p_te), all at once     balanced: c      Megatron-LM's aux_loss
 *   deepseek      c mean over groups of sum_e (n_e E / (N K)) P_e       balanced: c      DeepSeek-V2 and V3: sequence-wise, a group is a sequence
 *
 * Hugging Face's loss is one for all layers: their tokens stand one after the other in the arrays (not a mean of the layers' losses). Padding counts in
 * neither N nor P; a group of padding alone is left out of the mean. The counts are constants: gradients are by the probabilities. */

/* flags of ffn_moe_balance_t */
enum { FFN_MOE_LOSS_NORMALISE = 1 }; /* p is each row of probabilities divided by its sum + 1e-20: sigmoid and sqrt-softplus scores (Megatron, DeepSeek) */

typedef struct ffn_moe_balance {
    uint32_t struct_size;       /* required: sizeof(ffn_moe_balance_t) */
    uint32_t flags;             /* FFN_MOE_LOSS_NORMALISE or 0 */
    int64_t tokens;             /* 0 to 2^31 - 1. 0: the loss is 0 */
    int64_t experts;            /* 1 to FFN_MOE_EXPERTS_MOST */
    int64_t top_k;              /* K: 1 to experts */
    int64_t group_tokens;       /* tokens of a group, >= 0. 0: all are one group, as they must be for huggingface and megatron */
    const float *probabilities; /* [tokens, experts]: scores, as ffn_moe_route writes them */
    const int64_t *counts;      /* [groups, experts], as ffn_moe_count writes them: each 0 to N, together at most K N (gshard: N) */
    const uint8_t *mask;        /* [tokens]  0: padding. NULL: all tokens count */
    float *gradient;            /* [tokens, experts]: the loss's derivative by each probability is ADDED to it. NULL: not wanted */
    double coefficient;         /* c, finite. 0: 1 */
} ffn_moe_balance_t;

/* *value = the loss, summed in float64. It is 0 on failure. Arrays must not overlap the gradient. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_moe_loss_switch(const ffn_moe_balance_t *balance, double *value);
FFN_API ffn_status_t ffn_moe_loss_gshard(const ffn_moe_balance_t *balance, double *value);
FFN_API ffn_status_t ffn_moe_loss_huggingface(const ffn_moe_balance_t *balance, double *value);
FFN_API ffn_status_t ffn_moe_loss_megatron(const ffn_moe_balance_t *balance, double *value);
FFN_API ffn_status_t ffn_moe_loss_deepseek(const ffn_moe_balance_t *balance, double *value);

/* The router z-loss (ST-MoE, arXiv 2202.08906): *value = coefficient * mean over tokens of (log sum_e e^z_te)^2, over logits that keep near 0: 0 where
 * each token's exponentials add up to 1, coefficient * log(experts)^2 where all logits are 0.
 *   logits    [tokens, experts]        mask  as above
 *   gradient  [tokens, experts]: the derivative by each logit is ADDED to it. NULL: not wanted
 * tokens and experts as above; coefficient finite, 0: 1. *value is 0 on failure. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_moe_loss_z(int64_t tokens, int64_t experts, const float *logits, const uint8_t *mask, double coefficient, float *gradient,
                                    double *value);

/* Balancing without a loss (DeepSeek-V3, arXiv 2412.19437): selection_bias[e] += rate * sign(mean of the counts - counts[e]), after a step; no gradient.
 * counts [experts], each >= 0; rate finite, >= 0 (0.001 in DeepSeek-V3). Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_moe_update_bias(int64_t experts, const int64_t *counts, float rate, float *selection_bias);

/* ----------------------------------------------- Mixture of experts: the layer */

/* With options.moe a layer's branch is a mixture. n is NORM_IN(x); norms, residual and scales stand around it as around the dense branch:
 *
 *     f = NORM_BRANCH( sum over a token's slots of weight * EXPERT_id(n) + g * SHARED(n) + combine_bias )
 *
 * EXPERT_e is the dense or gated network of expert e's tensors, biases and NORM_MID within, with the layer's activation; an identity expert returns
 * its input. SHARED is one more network for all tokens, without NORM_MID, g is sigmoid(w n) with a SHARED_SCALE_WEIGHT, else 1. With latent
 * projections the experts compute on LATENT_IN n, and LATENT_OUT follows their weighted sum; router and shared experts see the full width. A slot of
 * FFN_MOE_NO_EXPERT adds nothing: a token that lost all its experts is its residual, shared experts and combine bias.
 *
 * Routing, step by step, each as the function of that name does it:
 *
 *     ffn_moe_logits        of n (flag: of x), with ROUTER_WEIGHT, ROUTER_BIAS, ROUTER_NORM_WEIGHT
 *     ffn_moe_route         with SELECTION_BIAS and EXPERT_SCALE; or ffn_moe_sparse_mixer; or ffn_moe_expert_choice
 *     ffn_moe_second_expert if options.second
 *     ffn_moe_limit         if options.capacity
 *     ffn_moe_route         again on the ids that are left, with flag NORMALISE_LAST
 *
 * or what the caller has computed (ffn_moe_run_t.routing). docs/routing.md has the options of every published family.
 *
 * With the native engine, and without capacity and expert choice, a token's bits depend on the token and the layer alone, as ever; logits and ids do so
 * with the blas engine too. A token whose logits have a NaN gets NaN outputs, unless it loses all its experts (to a capacity, to other tokens that experts
 * choose), and no other token does. */

/* options.flags of ffn_moe_options_t */
enum {
    FFN_MOE_WEIGHT_ON_INPUT = 1,  /* EXPERT_id(weight * n), not weight * EXPERT_id(n): Llama-4 */
    FFN_MOE_ROUTE_UNNORMED = 2,   /* the router's input is x, not NORM_IN(x): Gemma-4 */
    FFN_MOE_NORMALISE_LAST = 4,   /* weights are normalised, and scaled, after choices were dropped, not before: NLLB-MoE */
    FFN_MOE_SHARED_UNCLAMPED = 8  /* gate_max, up_limit and up_offset are the routed experts' alone: DeepSeek-V4 */
};

/* How experts are chosen. */
enum {
    FFN_MOE_CHOOSE_TOP_K = 0,        /* ffn_moe_route */
    FFN_MOE_CHOOSE_SPARSE_MIXER = 1, /* ffn_moe_sparse_mixer, with jitter_eps; top_k is 2, router NULL */
    FFN_MOE_CHOOSE_BY_EXPERTS = 2    /* ffn_moe_expert_choice on the scores: each expert takes capacity->capacity tokens of each group of
                                        capacity->group_tokens, or as many as its factor makes; top_k is all experts; the weights are the scores */
};

typedef struct ffn_moe_options {
    uint32_t struct_size;     /* required: sizeof(ffn_moe_options_t) */
    uint32_t flags;           /* FFN_MOE_* of the list above or-ed */
    int64_t experts;          /* E, 1 to FFN_MOE_EXPERTS_MOST together with Z. 0: as many as the tensors describe */
    int64_t identity_experts; /* Z: ids E to E + Z - 1 return their input. LongCat. They need experts with d_out = d_model, or latent projections */
    int64_t top_k;            /* required: choices of a token, 1 to E + Z */
    uint32_t choose;          /* FFN_MOE_CHOOSE_* */
    float jitter_eps;         /* of SPARSE_MIXER: finite, >= 0. Else 0 */
    uint32_t router_norm;     /* FFN_NORM_NONE, FFN_NORM_LAYER or FFN_NORM_RMS: of the router's input */
    float router_norm_eps;    /* as norm_eps */
    uint64_t chunk_bytes;     /* tokens go through in chunks whose rows - normed, gathered, computed, waiting to be combined - take about so much
                                 scratch memory. 0: 64 MiB. Every chunk reads the weights of the experts that it needs: smaller ones are slower */
    const ffn_moe_router_options_t *router;     /* NULL: all defaults. With FFN_MOE_GIVEN_IDS each run brings ids, which are weighed by the logits: hash
                                                   routing is ffn_moe_hash, then ffn_layer_run */
    const ffn_moe_second_options_t *second;     /* NULL: none. top_k is 2; stream and first_token are the run's, and 0 here */
    const ffn_moe_capacity_options_t *capacity; /* NULL: none. A group's tokens are routed before any is computed, so that ids and weights of a whole
                                                   group (0: of the run) are held in scratch memory beyond chunk_bytes */
} ffn_moe_options_t;

/* Tokens are numbered batch * length + t. Arrays are contiguous and must not overlap each other, x, y and residual. */
typedef struct ffn_moe_run {
    uint32_t struct_size;  /* required: sizeof(ffn_moe_run_t) */
    uint32_t flags;        /* 0: none is defined yet */
    const ffn_moe_routing_t *routing; /* ids and weights in place of the router, second and capacity; its tokens, experts (E + Z) and top_k (1 to E + Z) are
                                         the run's. With FFN_MOE_GIVEN_IDS required: ids alone, weights NULL, top_k the layer's. NULL: the layer routes */
    const uint8_t *mask;   /* [tokens]  0: padding, which goes to no routed expert, takes no capacity and counts nowhere. NULL: none. Not with routing,
                              which has its own */
    uint64_t stream;       /* of second choices at random */
    int64_t first_token;   /* likewise */
    int32_t *ids;          /* [tokens, top_k]      written: where each token went. NULL: not wanted, likewise below. top_k is the routing's, if given */
    float *weights;        /* [tokens, top_k] */
    float *logits;         /* [tokens, E + Z]      of a layer that routes */
    float *scores;         /* [tokens, E + Z]      likewise, for the losses; not of SPARSE_MIXER */
    int64_t *counts;       /* [E + Z]              tokens that each expert computed */
    ffn_moe_statistics_t *statistics; /* the load, as ffn_moe_statistics has it, with the scores of a layer that routes; struct_size is the caller's. What hidden
                                         units do is ffn_run_t.stats */
} ffn_moe_run_t;

/* Training: a mixture made with FFN_LAYER_TRAINABLE runs with a tape and dropout as a dense layer does, and ffn_layer_backward goes through combination,
 * experts, shared experts, projections and router at once. Its own words:
 *
 *  - Its engine is blas: auto is then, native is FFN_UNSUPPORTED.
 *  - Which experts are chosen is a constant, as above: "Mixture of experts: backward". The selection bias has the gradient 0.
 *  - Gradients of an expert that no token went to are exactly 0: written, or with FFN_BACKWARD_ACCUMULATE nothing is added.
 *  - With a routing that the run brought, the router's gradients are 0, and d_weights below is where the caller's router goes on.
 *  - A NORM_MID's tensors are each expert's own. Sums over tokens are in float64 over each chunk of tokens, and in float32 from chunk to chunk.
 *  - The tape keeps ids, weights and logits, and the pre-activations of what experts computed, [tokens * top_k, hidden width], unless it recomputes.
 *  - The backward pass takes the chunks that the run took: a context with a smaller scratch_limit may get FFN_NO_MEMORY.
 *  - Dropout: PRE_ACTIVATION, ACTIVATION and HIDDEN act in every expert. The row is the token's, as for BRANCH and PATH; the hidden units of expert e have
 *    the columns from e * d_ff on (d_ff rounded up to a multiple of 4), those of the shared experts the columns behind all experts'. They may be 2^30
 *    at the most. With one expert of weight 1 that is the dense layer's dropout. */
typedef struct ffn_moe_backward {
    uint32_t struct_size;  /* required: sizeof(ffn_moe_backward_t) */
    uint32_t flags;        /* 0: none is defined yet */
    const float *d_logits; /* [tokens, E + Z]   added to the derivatives by the logits: the z-loss's gradient. NULL: 0. Of a run that routed */
    const float *d_scores; /* [tokens, E + Z]   likewise by the scores: the load-balancing losses' gradients. Not of SPARSE_MIXER */
    float *d_weights;      /* [tokens, top_k]   written: the derivatives by the weights; 0 in slots of no expert. NULL: not wanted */
} ffn_moe_backward_t;

/* -------------------------------------------------------- Initialisation */

/* Schemes of random weights, over one array. in and out are the fans of the matrix [out, in] (of each one by itself, where gate and up are fused),
 * L the layers of the model; U(b) is uniform in [-b, b], N(s) normal with mean 0 and standard deviation s. g is options.gain, "(v)" its default. */
enum {
    FFN_INIT_XAVIER_UNIFORM = 1,  /* U(g sqrt(6 / (in + out))), g (1)       Glorot & Bengio 2010 */
    FFN_INIT_XAVIER_NORMAL = 2,   /* N(g sqrt(2 / (in + out))), g (1) */
    FFN_INIT_KAIMING_UNIFORM = 3, /* U(g sqrt(3 / in)), g (sqrt 2, ReLU's)  He et al., arXiv 1502.01852 */
    FFN_INIT_KAIMING_NORMAL = 4,  /* N(g / sqrt(in)), g (sqrt 2) */
    FFN_INIT_LECUN_NORMAL = 5,    /* N(g / sqrt(in)), g (1) */
    FFN_INIT_NORMAL = 6,          /* N(g), g (0.02)                         BERT, GPT-2 */
    FFN_INIT_TRUNCATED_NORMAL = 7,/* N(g), g (0.02), cut at `cutoff` (2) standard deviations */
    FFN_INIT_TORCH_LINEAR = 8,    /* U(1 / sqrt(in)): PyTorch's Linear, weight and bias (whose in is the matrix's) */
    FFN_INIT_T5 = 9,              /* N(g / sqrt(in)), g (1): T5's initializer_factor */
    FFN_INIT_GPT2_SCALED = 10,    /* N(g / sqrt(2 L)), g (0.02): the down matrix of GPT-2 and Megatron */
    FFN_INIT_NEOX_SMALL = 11,     /* N(sqrt(2 / (5 in))): GPT-NeoX's small_init of up and gate, whose in is d_model */
    FFN_INIT_NEOX_WANG = 12,      /* N(2 / (L sqrt(out))): GPT-NeoX's wang_init of down, whose out is d_model */
    FFN_INIT_UNIFORM_UNIT_SCALING = 13 /* U(sqrt(6 g / (in + out))), g (1): tensor2tensor's uniform_unit_scaling */
};

/* options.flags of ffn_weight_init */
enum { FFN_INIT_KEEP_VARIANCE = 1 }; /* with a cutoff: s is the standard deviation after the cut (variance_scaling of TF and Flax: 1 / 0.8796 at 2) */

typedef struct ffn_init_options {
    uint32_t struct_size; /* required: sizeof(ffn_init_options_t) */
    uint32_t flags;       /* FFN_INIT_KEEP_VARIANCE or 0 */
    uint32_t scheme;      /* required: FFN_INIT_* */
    float gain;           /* g, > 0. 0: the scheme's default. Must be 0 where the formula has none */
    uint64_t seed;        /* any number */
    uint64_t stream;      /* which array of that seed: 0 to 2^32 - 1. Arrays with different numbers are independent */
    int64_t fan_in;       /* required where the formula has it, at least 1; else not looked at */
    int64_t fan_out;
    int64_t layers;
    float cutoff;         /* normal schemes: draw within +-cutoff standard deviations, > 0. 0: no limit (TRUNCATED_NORMAL: 2) */
    uint32_t reserved;    /* 0 */
} ffn_init_options_t;

/* Fills values[0 .. count-1]. values[i] is a function of (scheme's scale, seed, stream, i) alone: word i % 4 of Philox 4x32-10 with the key `seed`
 * and the counter (i / 4 mod 2^32, i / 2^34, stream, 0xffff0000), made a number in (0, 1) as (word + 1/2) / 2^32, then stretched, or put through
 * the inverse of the normal distribution. count 0 does nothing. Status: FFN_INVALID. */
FFN_API ffn_status_t ffn_weight_init(float *values, int64_t count, const ffn_init_options_t *options);

/* ------------------------------------------------------------- Optimisers */

/* One step each over n numbers of one array. Arrays must not overlap each other, except that all may be NULL with n = 0. The context's threads help
 * (NULL: the calling thread alone); results do not depend on them, nor on the ISA level. NaN and infinity go through as the formula has it. */

/* options.flags of ffn_sgd_step */
enum { FFN_SGD_NESTEROV = 1 };

typedef struct ffn_sgd_options {
    uint32_t struct_size; /* required: sizeof(ffn_sgd_options_t) */
    uint32_t flags;       /* FFN_SGD_NESTEROV (needs momentum), or 0 */
    float learning_rate;  /* finite, >= 0 */
    float momentum;       /* 0 to below 1 */
    float weight_decay;   /* finite, >= 0: added to the gradient (L2) */
    uint32_t reserved;    /* 0 */
} ffn_sgd_options_t;

/* g = gradient + weight_decay * weight; velocity = momentum * velocity + g; weight -= learning_rate * velocity (Nesterov: g + momentum * velocity).
 * velocity is the optimiser's state, zeros before the first step; NULL where momentum is 0. Statuses: FFN_INVALID, FFN_NO_MEMORY (a thread's first
 * call), FFN_BUSY. */
FFN_API ffn_status_t ffn_sgd_step(ffn_context_t *context, const ffn_sgd_options_t *options, int64_t n, float *weight, const float *gradient,
                                  float *velocity);

typedef struct ffn_adamw_options {
    uint32_t struct_size; /* required: sizeof(ffn_adamw_options_t) */
    uint32_t flags;       /* 0: none is defined yet */
    int64_t step;         /* required: 1, 2, 3, ... */
    float learning_rate;  /* finite, >= 0 */
    float beta1;          /* 0 to below 1. 0: 0.9 */
    float beta2;          /* 0 to below 1. 0: 0.999 */
    float eps;            /* finite, >= 0. 0: 1e-8 */
    float weight_decay;   /* finite, >= 0: decoupled from the gradient. 0: none, which is Adam */
    uint32_t reserved;    /* 0 */
} ffn_adamw_options_t;

/* m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
 * weight -= learning_rate * (weight_decay * weight + m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps))
 * Loshchilov & Hutter, arXiv 1711.05101. first (m) and second (v) are the state, zeros before step 1. Statuses as ffn_sgd_step. */
FFN_API ffn_status_t ffn_adamw_step(ffn_context_t *context, const ffn_adamw_options_t *options, int64_t n, float *weight, const float *gradient,
                                    float *first, float *second);

/* Clipping by the global norm: *norm = sqrt(the sum of squares over all arrays), summed in float64; if it is above max_norm (> 0; infinity only
 * measures) and finite, every number is multiplied by max_norm / *norm. With a norm that is not finite nothing is changed: the program sees it in
 * *norm and leaves the step out. arrays[i] has counts[i] numbers; arrays must not overlap. Statuses as ffn_sgd_step, and FFN_NO_MEMORY. */
FFN_API ffn_status_t ffn_clip_global_norm(ffn_context_t *context, float *const *arrays, const int64_t *counts, uint64_t array_count, double max_norm,
                                          double *norm);

#ifdef __cplusplus
}
#endif
#endif
