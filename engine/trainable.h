/* Trainable values: one flat fp32 vector with a hashed layout.
 *
 * FFA-LoRA (Sun et al. 2024, arXiv 2403.12313): y = W x + (alpha / rank) B (A x), A [rank, n_in]
 * frozen and drawn from a public 32-byte seed, B [n_out, rank] trained, zero at first:
 * A[i, j] = sqrt(3 / n_in) (2u - 1), u = (w >> 8) / 2^24 with w = 32-bit word number i * n_in + j
 * (little-endian) of ChaCha20 under the seed, in its original form with a nonce of 8 bytes
 * (libsodium's crypto_stream_chacha20): the ordinal of the tensor, u64 little-endian, which counts
 * adapted tensors in layout order.
 *
 * The core form (LoRA-XS, Balazy et al. 2024, arXiv 2405.17604; federated, Fed-SB, Singhal et al.
 * 2025, arXiv 2502.15436): y = W x + scale B (R (A x)), R [rank, rank] trained, zero at first, A as
 * above and B [n_out, rank] drawn likewise: B[i, j] = sqrt(3 / rank) (2u - 1) from word number
 * i * rank + j, the nonce's highest bit set. */
#ifndef TACIT_ENGINE_TRAINABLE_H
#define TACIT_ENGINE_TRAINABLE_H

#include "common/digest.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tacit_trainable_kind {
    TACIT_TRAIN_LORA,      /* A and B */
    TACIT_TRAIN_LORA_FFA,  /* B only */
    TACIT_TRAIN_LORA_CORE, /* R between A and B only */
    TACIT_TRAIN_PROMPT,    /* soft prompts (soft_prompt.h) */
    TACIT_TRAIN_PROJECTOR, /* mm.* */
    TACIT_TRAIN_ALL        /* every tensor of text model, tower and projector */
} tacit_trainable_kind;

#define TACIT_TRAINABLE_TARGETS_MAX 16
#define TACIT_TRAINABLE_RANK_MAX 1024

typedef struct tacit_trainable_spec {
    tacit_trainable_kind kind;
    const char *target[TACIT_TRAINABLE_TARGETS_MAX]; /* which linears, as in lora_sites.h */
    size_t n_targets;
    uint32_t rank;        /* where a target names none */
    double alpha;         /* a pair is scaled by alpha / rank */
    uint8_t seed[32];     /* of what is drawn: A, the core form's B */
    bool rslora;          /* by alpha / sqrt(rank) (Kalajdzievski 2023, arXiv 2312.03732) */
    uint32_t last_layers; /* of the text model's layers, the last so many alone; 0: all */
    /* Of soft prompts: rows before an input, and before every picture. */
    uint32_t virtual_tokens, image_virtual_tokens;
} tacit_trainable_spec;

/* Soft prompts start as embeddings of tokens: row i of the text's (nonce 0) or the pictures' (nonce
 * 1) as that of token w * vocab >> 32, w = word number i of ChaCha20 under the seed.
 *
 * One tensor in the flat vector: [rows, cols] row-major at `offset`. */
typedef struct tacit_trainable_entry {
    char name[144]; /* GGUF name, for LoRA with ".lora_a", ".lora_b" or ".lora_core" */
    size_t rows, cols;
    size_t offset;
} tacit_trainable_entry;

/* Order: for LoRA that of its sites (lora_sites.h), A before B; for ALL the
 * embedding, of each layer norms and linears (text_model.h), output norm and output. Then, for ALL
 * and PROJECTOR, the encoders' (encoder.h). For PROMPT "prompt.text", then "prompt.image". */
typedef struct tacit_layout {
    tacit_trainable_entry *entry;
    size_t count;
    size_t values;                    /* length of the flat vector */
    uint8_t hash[TACIT_DIGEST_BYTES]; /* over names, shapes and order */
} tacit_layout;

#endif
