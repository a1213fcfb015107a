/* A budget's epsilon where nothing may fail: include after cmocka.h. */
#ifndef TESTS_PRIVACY_BUDGET_EPSILON_H
#define TESTS_PRIVACY_BUDGET_EPSILON_H

#include "privacy/budget.h"
#include "privacy/pld.h"

#include <math.h>

static inline double budget_epsilon(const tacit_budget *b)
{
    double epsilon;
    tacit_error err;
    assert_int_equal(tacit_budget_epsilon(b, &epsilon, &err), TACIT_OK);
    return epsilon;
}

/* Whether `found` is what one schedule of `event` costs at `delta`: never below the loss
 * distribution on its finest grid, and above it by no more than the account's grid is coarser. */
static inline bool is_cost_of(double found, tacit_event event, double delta)
{
    double least;
    tacit_error err;
    assert_int_equal(tacit_pld_epsilon(&event, 1, delta, NULL, &least, &err), TACIT_OK);
    bool is = found >= least * (1 - 1e-9) && found <= least * (1 + 3e-4);
    if (!is)
        print_error("expected %.12g, found %.12g\n", least, found);
    return is;
}

#endif
