/* tacit-audit calibrate: the least noise that keeps within a budget. */
#include "common/options.h"
#include "privacy/accountant.h"
#include "privacy/audit_commands.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct calibration {
    double sigma;    /* the least multiplier, as a real number */
    uint64_t b;      /* the least executable one: TACIT_B_MIN at least */
    double executed; /* its multiplier */
    double epsilon;  /* what that costs */
} calibration;

static tacit_status calibrate(const tacit_accountant *a, tacit_event shape, double epsilon,
                              double delta, calibration *out, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(tacit_accountant_calibrate(a, &shape, epsilon, delta, &out->sigma, err), out);
    TACIT_TRY(tacit_b_for_noise_multiplier(&out->b, out->sigma, err), out);
    out->executed = shape.sigma = tacit_noise_multiplier(out->b);
    status = tacit_accountant_epsilon(a, &shape, 1, delta, &out->epsilon, NULL, err);
out:
    return status;
}

static void print_people(const tacit_accountant *a, const tacit_event *shape, double delta,
                         const calibration *c)
{
    printf("%s, %s neighbours, q %g, %" PRIu64 " steps, delta %g: sigma %.9g\n",
           tacit_accountant_name(a), tacit_neighbours_name(shape->neighbours), shape->q,
           shape->count, delta, c->sigma);
    printf("as executed: b %" PRIu64 ", noise multiplier %.9g, epsilon %.9g\n", c->b, c->executed,
           c->epsilon);
}

static void print_json(const tacit_accountant *a, const tacit_event *shape, double delta,
                       const calibration *c)
{
    printf("{\"accountant\":\"%s\",\"neighbours\":\"%s\",\"q\":%.17g,\"steps\":%" PRIu64
           ",\"delta\":%.17g,",
           tacit_accountant_name(a), tacit_neighbours_name(shape->neighbours), shape->q,
           shape->count, delta);
    printf("\"sigma\":%.17g,\"b\":%" PRIu64 ",\"executed_sigma\":%.17g,\"epsilon\":%.17g}\n",
           c->sigma, c->b, c->executed, c->epsilon);
}

tacit_status cmd_calibrate(int argc, char **argv, tacit_error *err)
{
    const char *accountant_word = "rdp", *neighbours_word = "add-remove";
    double epsilon = 0, delta = 0;
    tacit_event shape = {.sigma = 1};
    bool json = false, help;
    const tacit_usage usage = {"tacit-audit calibrate", NULL, 0, 0,
                               "the smallest noise multiplier within a budget"};
    const tacit_option table[] = {
        {"epsilon", 0, TACIT_OPTION_REAL, &epsilon, true, "E", "the budget", 1e-9, 1e9},
        {"delta", 0, TACIT_OPTION_REAL, &delta, true, "D", "between 0 and 1", 0, 1},
        {"q", 0, TACIT_OPTION_REAL, &shape.q, true, "Q", "sampling rate, up to 1", 1e-18, 1},
        {"steps", 0, TACIT_OPTION_U64, &shape.count, true, "N", "noised steps", 1, 1e12},
        {"accountant", 0, TACIT_OPTION_TEXT, &accountant_word, false, "WORD",
         "pld, rdp (the default), rdp-compat or analytic", 0, 0},
        {"neighbours", 0, TACIT_OPTION_TEXT, &neighbours_word, false, "WORD",
         "add-remove or replace-one", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_accountant *accountant;
    calibration found;
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), out);
    if (help)
        return TACIT_OK;
    TACIT_TRY(tacit_accountant_find(&accountant, accountant_word, err), out);
    TACIT_TRY(tacit_neighbours_parse(&shape.neighbours, neighbours_word, err), out);
    TACIT_TRY(calibrate(accountant, shape, epsilon, delta, &found, err), out);
    (json ? print_json : print_people)(accountant, &shape, delta, &found);
out:
    return status;
}
