/* Any bytes as PEFT's adapter_config.json: what is accepted gives every module a rank and a finite
 * weight, or says why not. */
#include "fuzz_target.h"

#include "engine/peft_config.h"
#include "engine/trainable.h"

#include <math.h>

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const modules[] = {"model.layers.0.self_attn.q_proj",
                                          "model.text_model.layers.11.mlp.down_proj", "lm_head"};
    peft_config *c;
    tacit_error err;
    fuzz_accepted = peft_config_parse(&c, data, size, "fuzz", &err) == TACIT_OK;
    if (!fuzz_accepted) {
        FUZZ_CHECK(c == NULL);
        return 0;
    }
    FUZZ_CHECK(isfinite(peft_config_weight(c)) && peft_config_weight(c) > 0);
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        uint32_t rank;
        double weight;
        if (peft_config_pair(c, modules[i], &rank, &weight, &err) != TACIT_OK)
            continue;
        FUZZ_CHECK(rank >= 1 && rank <= TACIT_TRAINABLE_RANK_MAX);
        FUZZ_CHECK(isfinite(weight) && weight > 0);
    }
    peft_config_free(c);
    return 0;
}
