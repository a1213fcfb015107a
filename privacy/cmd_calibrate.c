/* tacit-audit calibrate: the least noise, or the most steps, within a budget. */
#include "privacy/audit_commands.h"
#include "privacy/cmd_accountant.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct calibration {
    accountant_choice choice;
    double epsilon, delta; /* the budget */
    tacit_event event;     /* what was asked for filled in; sigma as a real number */
    uint64_t b;            /* the least executable one: TACIT_B_MIN at least */
    double executed;       /* its multiplier */
    double cost;           /* what that costs */
} calibration;

/* sigma of the event where it was not given, else its steps. */
static tacit_status find_missing(calibration *c, bool steps_given, tacit_error *err)
{
    const accountant_choice *by = &c->choice;
    if (steps_given)
        return tacit_accountant_calibrate(&by->accountant, &c->event, c->epsilon, c->delta,
                                          &c->event.sigma, err);
    return tacit_accountant_calibrate_count(&by->accountant, &c->event, c->epsilon, c->delta,
                                            &c->event.count, err);
}

static tacit_status calibrate(calibration *c, bool steps_given, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(find_missing(c, steps_given, err), out);
    TACIT_TRY(tacit_b_for_noise_multiplier(&c->b, c->event.sigma, err), out);
    tacit_event run = c->event;
    c->executed = run.sigma = tacit_noise_multiplier(c->b);
    status =
        tacit_accountant_epsilon(&c->choice.accountant, &run, 1, c->delta, &c->cost, NULL, err);
out:
    return status;
}

static void print_people(const calibration *c)
{
    printf("%s, %s neighbours, q %g, %" PRIu64 " steps, delta %g: sigma %.9g\n",
           c->choice.accountant_word, tacit_neighbours_name(c->event.neighbours), c->event.q,
           c->event.count, c->delta, c->event.sigma);
    printf("as executed: b %" PRIu64 ", noise multiplier %.9g, epsilon %.9g\n", c->b, c->executed,
           c->cost);
}

static void print_json(const calibration *c)
{
    printf("{\"accountant\":\"%s\",\"neighbours\":\"%s\",\"q\":%.17g,\"steps\":%" PRIu64
           ",\"delta\":%.17g,",
           c->choice.accountant_word, tacit_neighbours_name(c->event.neighbours), c->event.q,
           c->event.count, c->delta);
    printf("\"sigma\":%.17g,\"b\":%" PRIu64 ",\"executed_sigma\":%.17g,\"epsilon\":%.17g}\n",
           c->event.sigma, c->b, c->executed, c->cost);
}

tacit_status cmd_calibrate(int argc, char **argv, tacit_error *err)
{
    calibration c = {.epsilon = 0};
    bool json = false, help;
    const tacit_usage usage = {"tacit-audit calibrate", NULL, 0, 0,
                               "the smallest noise multiplier, or the most steps, within a budget"};
    const tacit_option table[] = {
        {"epsilon", 0, TACIT_OPTION_REAL, &c.epsilon, true, "E", "the budget", 1e-9, 1e9},
        {"delta", 0, TACIT_OPTION_REAL, &c.delta, true, "D", "between 0 and 1", 0, 1},
        {"q", 0, TACIT_OPTION_REAL, &c.event.q, true, "Q", "sampling rate, up to 1", 1e-18, 1},
        {"steps", 0, TACIT_OPTION_U64, &c.event.count, false, "N",
         "noised steps: find the least sigma", 1, 1e12},
        {"sigma", 0, TACIT_OPTION_REAL, &c.event.sigma, false, "SIGMA",
         "noise multiplier: find the most steps, up to 2^40", 1e-3, 1e9},
        ACCOUNTANT_CHOICE_ROWS(c.choice),
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    tacit_status status;
    accountant_choice_defaults(&c.choice);
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), out);
    if (help)
        return TACIT_OK;
    if ((c.event.count > 0) == (c.event.sigma > 0))
        return tacit_fail(err, TACIT_USAGE,
                          "tacit-audit calibrate: expected either --steps, for the least sigma, or "
                          "--sigma, for the most steps");
    TACIT_TRY(accountant_choice_read(&c.choice, err), out);
    c.event.neighbours = c.choice.neighbours;
    TACIT_TRY(calibrate(&c, c.event.count > 0, err), out);
    (json ? print_json : print_people)(&c);
out:
    return status;
}
