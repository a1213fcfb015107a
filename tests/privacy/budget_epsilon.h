/* A budget's epsilon where nothing may fail: include after cmocka.h. */
#ifndef TESTS_PRIVACY_BUDGET_EPSILON_H
#define TESTS_PRIVACY_BUDGET_EPSILON_H

#include "privacy/budget.h"

static inline double budget_epsilon(const tacit_budget *b)
{
    double epsilon;
    tacit_error err;
    assert_int_equal(tacit_budget_epsilon(b, &epsilon, &err), TACIT_OK);
    return epsilon;
}

#endif
