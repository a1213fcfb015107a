/* Qwen 2 and 2.5 (Yang et al. 2024, arXiv 2407.10671): biases on q, k and v. Qwen 2 VL's text
 * model (arXiv 2409.12191): the same, with positions of several numbers. Qwen 3 (arXiv
 * 2505.09388): no biases; each head of q and k is normalised before its rotation, and heads need
 * not divide the embedding. All rotate pairs that are half a head apart. */
#include "engine/text_arch.h"

const text_arch arch_qwen2 = {
    .name = "qwen2",
    .rope = OPS_ROPE_HALVES,
    .activation = &ops_swiglu,
    .bias = {[TEXT_Q] = TEXT_REQUIRED, [TEXT_K] = TEXT_REQUIRED, [TEXT_V] = TEXT_REQUIRED},
    .norm = {[TEXT_ATTN_NORM] = TEXT_REQUIRED, [TEXT_FFN_NORM] = TEXT_REQUIRED},
};

const text_arch arch_qwen2vl = {
    .name = "qwen2vl",
    .rope = OPS_ROPE_HALVES,
    .activation = &ops_swiglu,
    .bias = {[TEXT_Q] = TEXT_REQUIRED, [TEXT_K] = TEXT_REQUIRED, [TEXT_V] = TEXT_REQUIRED},
    .norm = {[TEXT_ATTN_NORM] = TEXT_REQUIRED, [TEXT_FFN_NORM] = TEXT_REQUIRED},
    .rope_sections = TEXT_REQUIRED,
};

const text_arch arch_qwen3 = {
    .name = "qwen3",
    .rope = OPS_ROPE_HALVES,
    .activation = &ops_swiglu,
    .norm = {[TEXT_ATTN_NORM] = TEXT_REQUIRED,
             [TEXT_FFN_NORM] = TEXT_REQUIRED,
             [TEXT_Q_NORM] = TEXT_REQUIRED,
             [TEXT_K_NORM] = TEXT_REQUIRED},
};
