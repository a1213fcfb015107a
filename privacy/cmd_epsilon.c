/* tacit-audit epsilon: what a list of events costs. */
#include "common/options.h"
#include "privacy/accountant.h"
#include "privacy/audit_commands.h"
#include "privacy/pld.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_people(const tacit_accountant *a, tacit_neighbours neighbours, double delta,
                         double epsilon, double order)
{
    printf("epsilon %.6g at delta %g (%s, %s neighbours", epsilon, delta, tacit_accountant_name(a),
           tacit_neighbours_name(neighbours));
    if (order > 0)
        printf(", order %g", order);
    printf(")\n");
}

static void print_json(const tacit_accountant *a, tacit_neighbours neighbours, double delta,
                       double epsilon, double order)
{
    printf("{\"accountant\":\"%s\",\"neighbours\":\"%s\",\"delta\":%.17g,\"epsilon\":",
           tacit_accountant_name(a), tacit_neighbours_name(neighbours), delta);
    if (isfinite(epsilon))
        printf("%.17g", epsilon);
    else
        printf("null");
    if (order > 0)
        printf(",\"order\":%.17g", order);
    printf("}\n");
}

/* `interval` is the step of pld's grid, 0 for its own choice. */
static tacit_status compute(const tacit_accountant *a, const tacit_event *events, size_t n,
                            double delta, double interval, double *epsilon, double *order,
                            tacit_error *err)
{
    if (interval == 0)
        return tacit_accountant_epsilon(a, events, n, delta, epsilon, order, err);
    *order = 0;
    if (strcmp(tacit_accountant_name(a), "pld") != 0)
        return tacit_fail(err, TACIT_USAGE, "--pld-interval needs --accountant pld");
    return tacit_pld_epsilon(events, n, delta, interval, epsilon, err);
}

tacit_status cmd_epsilon(int argc, char **argv, tacit_error *err)
{
    tacit_option_list texts = {.count = 0};
    const char *accountant_word = "rdp", *neighbours_word = "add-remove";
    double delta = 0, interval = 0, epsilon, order;
    bool json = false, help;
    const tacit_usage usage = {"tacit-audit epsilon", NULL, 0, 0,
                               "the epsilon of a list of mechanisms"};
    const tacit_option table[] = {
        {"event", 0, TACIT_OPTION_LIST, &texts, true, "SIGMA:Q:STEPS",
         "noise multiplier, sampling rate, steps; may be repeated", 0, 0},
        {"delta", 0, TACIT_OPTION_REAL, &delta, true, "D", "between 0 and 1", 0, 1},
        {"accountant", 0, TACIT_OPTION_TEXT, &accountant_word, false, "WORD",
         "pld, rdp (the default), rdp-compat or analytic", 0, 0},
        {"neighbours", 0, TACIT_OPTION_TEXT, &neighbours_word, false, "WORD",
         "add-remove or replace-one", 0, 0},
        {"pld-interval", 0, TACIT_OPTION_REAL, &interval, false, "STEP",
         "step of pld's grid, 1e-4 for the reference's; chosen by default", 1e-9, 1},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_accountant *accountant;
    tacit_neighbours neighbours;
    tacit_event events[TACIT_OPTION_LIST_MAX];
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), out);
    if (help)
        return TACIT_OK;
    TACIT_TRY(tacit_accountant_find(&accountant, accountant_word, err), out);
    TACIT_TRY(tacit_neighbours_parse(&neighbours, neighbours_word, err), out);
    for (size_t i = 0; i < texts.count; i++)
        TACIT_TRY(tacit_event_parse(&events[i], texts.item[i], neighbours, err), out);
    TACIT_TRY(compute(accountant, events, texts.count, delta, interval, &epsilon, &order, err),
              out);
    (json ? print_json : print_people)(accountant, neighbours, delta, epsilon, order);
out:
    return status;
}
