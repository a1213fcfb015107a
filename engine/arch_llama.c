/* Llama, and what shares its layers: SmolLM2, Mistral 7B, TinyLlama, ... (Touvron et al. 2023). Its
 * converter reorders the rows of q and k, so that pairs of rotation are neighbours. Llama 3.1 and
 * 3.2 stretch the rotation by divisors in a tensor. */
#include "engine/text_arch.h"

const text_arch arch_llama = {
    .name = "llama",
    .rope = OPS_ROPE_PAIRS,
    .activation = &ops_swiglu,
    .bias = {[TEXT_Q] = TEXT_OPTIONAL,
             [TEXT_K] = TEXT_OPTIONAL,
             [TEXT_V] = TEXT_OPTIONAL,
             [TEXT_O] = TEXT_OPTIONAL,
             [TEXT_GATE] = TEXT_OPTIONAL,
             [TEXT_UP] = TEXT_OPTIONAL,
             [TEXT_DOWN] = TEXT_OPTIONAL},
    .norm = {[TEXT_ATTN_NORM] = TEXT_REQUIRED, [TEXT_FFN_NORM] = TEXT_REQUIRED},
    .rope_divisors = TEXT_OPTIONAL,
};
