/* tacit-audit epsilon: what a list of events costs. */
#include "privacy/audit_commands.h"
#include "privacy/cmd_accountant.h"

#include <math.h>
#include <stdio.h>

static void print_people(const accountant_choice *c, double delta, double epsilon, double order)
{
    printf("epsilon %.6g at delta %g (%s, %s neighbours", epsilon, delta, c->accountant_word,
           tacit_neighbours_name(c->neighbours));
    if (order > 0)
        printf(", order %g", order);
    printf(")\n");
}

static void print_json(const accountant_choice *c, double delta, double epsilon, double order)
{
    printf("{\"accountant\":\"%s\",\"neighbours\":\"%s\",\"delta\":%.17g,\"epsilon\":",
           c->accountant_word, tacit_neighbours_name(c->neighbours), delta);
    if (isfinite(epsilon))
        printf("%.17g", epsilon);
    else
        printf("null");
    if (order > 0)
        printf(",\"order\":%.17g", order);
    printf("}\n");
}

tacit_status cmd_epsilon(int argc, char **argv, tacit_error *err)
{
    tacit_option_list texts = {.count = 0};
    accountant_choice c;
    double delta = 0, epsilon, order;
    bool json = false, help;
    const tacit_usage usage = {"tacit-audit epsilon", NULL, 0, 0,
                               "the epsilon of a list of mechanisms"};
    const tacit_option table[] = {
        {"event", 0, TACIT_OPTION_LIST, &texts, true, "SIGMA:Q:STEPS",
         "noise multiplier, sampling rate, steps", 0, 0},
        {"delta", 0, TACIT_OPTION_REAL, &delta, true, "D", "between 0 and 1", 0, 1},
        ACCOUNTANT_CHOICE_ROWS(c),
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    tacit_event events[TACIT_OPTION_LIST_MAX];
    tacit_status status;
    accountant_choice_defaults(&c);
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), out);
    if (help)
        return TACIT_OK;
    TACIT_TRY(accountant_choice_read(&c, err), out);
    for (size_t i = 0; i < texts.count; i++)
        TACIT_TRY(tacit_event_parse(&events[i], texts.item[i], c.neighbours, err), out);
    TACIT_TRY(
        tacit_accountant_epsilon(&c.accountant, events, texts.count, delta, &epsilon, &order, err),
        out);
    (json ? print_json : print_people)(&c, delta, epsilon, order);
out:
    return status;
}
