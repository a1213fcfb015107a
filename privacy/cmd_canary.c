/* tacit-audit canary: which epsilon a run with canaries refutes. */
#include "common/file.h"
#include "common/json_print.h"
#include "common/options.h"
#include "common/text.h"
#include "privacy/audit_commands.h"
#include "privacy/canary_bound.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static size_t count_included(const tacit_canary_scores *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += s->included[i];
    return n;
}

static bool stands(const tacit_canary_scores *s, const tacit_canary_finding *f)
{
    return f->epsilon <= s->epsilon;
}

static void print_people(const char *path, const tacit_canary_scores *s,
                         const tacit_canary_finding *f, double confidence)
{
    const tacit_mechanism *m = &s->mechanism;
    char reserve[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(reserve, s->reserve, sizeof s->reserve);
    printf("reserve %s\n%zu canaries, %zu of them in: %s, unit %s, noise multiplier %.6g, q %.6g, "
           "%" PRIu32 " steps\n",
           reserve, s->count, count_included(s), tacit_mechanism_kind_name(m->kind),
           tacit_privacy_unit_name(m->unit), tacit_noise_multiplier(m->b),
           tacit_sampling_rate(m->q_num), m->steps);
    printf("  %10s %10s %10s  %s\n", "guessed in", "out", "right", "epsilon is at least");
    for (size_t i = 0; i < TACIT_CANARY_RULES; i++)
        printf("  %10zu %10zu %10zu  %.6g\n", f->rule[i].top, f->rule[i].bottom, f->rule[i].right,
               f->rule[i].epsilon);
    printf(
        "%s: epsilon is at least %.6g with confidence %g %%, the claim is %.6g at delta %g: %s\n",
        path, f->epsilon, 100 * confidence, s->epsilon, s->delta,
        stands(s, f) ? "nothing against it" : "REFUTED");
}

static json_t *json_rules(const tacit_canary_finding *f)
{
    json_t *list = json_array();
    for (size_t i = 0; i < TACIT_CANARY_RULES; i++) {
        const tacit_canary_guesses *g = &f->rule[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:I, s:f}", "guessed_in", (json_int_t)g->top,
                                        "guessed_out", (json_int_t)g->bottom, "right",
                                        (json_int_t)g->right, "epsilon", g->epsilon));
    }
    return list;
}

static tacit_status print_json(const tacit_canary_scores *s, const tacit_canary_finding *f,
                               double confidence, tacit_error *err)
{
    const tacit_mechanism *m = &s->mechanism;
    char reserve[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(reserve, s->reserve, sizeof s->reserve);
    json_t *root =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:s, s:s, s:f, s:f, s:I, s:s, s:o}",
                  "canary", stands(s, f) ? "ok" : "refuted", "epsilon_at_least", f->epsilon,
                  "epsilon", s->epsilon, "delta", s->delta, "confidence", confidence, "canaries",
                  (json_int_t)s->count, "included", (json_int_t)count_included(s), "mechanism",
                  tacit_mechanism_kind_name(m->kind), "unit", tacit_privacy_unit_name(m->unit),
                  "sigma", tacit_noise_multiplier(m->b), "q", tacit_sampling_rate(m->q_num),
                  "steps", (json_int_t)m->steps, "reserve", reserve, "rules", json_rules(f));
    return tacit_json_print(root, TACIT_JSON_DIGITS, err);
}

static tacit_status read_scores(tacit_canary_scores *out, const char *path, tacit_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    tacit_status status = tacit_status_of_input(
        tacit_file_read(path, TACIT_CANARY_FILE_MAX, &bytes, &size, err), err);
    if (status != TACIT_OK)
        return status;
    status = tacit_canary_scores_read(out, bytes, size, err);
    free(bytes);
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "%s", path);
}

tacit_status cmd_canary(int argc, char **argv, tacit_error *err)
{
    const char *path = NULL;
    size_t positionals = 0;
    double confidence = 0.95;
    bool json = false, help = false;
    const tacit_usage usage = {"tacit-audit canary", "SCORES", 1, 1,
                               "holds the claimed epsilon against a training run with canaries"};
    const tacit_option table[] = {
        {"confidence", 0, TACIT_OPTION_REAL, &confidence, false, "P",
         "that the printed bound is to hold with (0.95)", 0.5, 1 - 1e-9},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    tacit_canary_scores scores = {.count = 0};
    tacit_canary_finding finding;
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, &path, &positionals, &help, err),
              done);
    if (help)
        return TACIT_OK;
    TACIT_TRY(read_scores(&scores, path, err), done);
    TACIT_TRY(tacit_canary_test(&finding, &scores, confidence, err), done);
    if (json)
        TACIT_TRY(print_json(&scores, &finding, confidence, err), done);
    else
        print_people(path, &scores, &finding, confidence);
    if (!stands(&scores, &finding))
        status =
            tacit_fail(err, TACIT_INTEGRITY,
                       "%s: epsilon is at least %.6g, the claim is %.6g: the noise, the clip or "
                       "the sampling of this run is not what was accounted",
                       path, finding.epsilon, scores.epsilon);
done:
    tacit_canary_scores_free(&scores);
    return status;
}
