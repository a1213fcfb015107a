/* The options by which subcommands of tacit-audit choose an accountant. */
#ifndef TACIT_PRIVACY_CMD_ACCOUNTANT_H
#define TACIT_PRIVACY_CMD_ACCOUNTANT_H

#include "common/options.h"
#include "privacy/accountant.h"

/* What stands on the command line; accountant_choice_defaults before parsing. */
typedef struct accountant_choice {
    const char *accountant_word, *neighbours_word, *orders_word;
    tacit_accountant accountant; /* with its options */
    tacit_neighbours neighbours;
    tacit_accountant_options options;
    double orders[TACIT_ORDERS_PARSED];
} accountant_choice;

#define CHOICE_TEXT(name, to, value, help)                                                         \
    {                                                                                              \
        name, 0, TACIT_OPTION_TEXT, to, false, value, help, 0, 0                                   \
    }
#define CHOICE_REAL(name, to, value, help, min, max)                                               \
    {                                                                                              \
        name, 0, TACIT_OPTION_REAL, to, false, value, help, min, max                               \
    }

/* Rows for a table of options; `c` is an accountant_choice. */
#define ACCOUNTANT_CHOICE_ROWS(c)                                                                  \
    CHOICE_TEXT("accountant", &(c).accountant_word, "WORD",                                        \
                "pld (the default), rdp, rdp-compat or analytic"),                                 \
        CHOICE_TEXT("neighbours", &(c).neighbours_word, "WORD",                                    \
                    "add-remove (the default) or replace-one"),                                    \
        CHOICE_TEXT("orders", &(c).orders_word, "A,B,...",                                         \
                    "rdp's orders, above 1.01, ascending; 156 from 1.1 to 1024 by default"),       \
        CHOICE_REAL("pld-interval", &(c).options.grid.interval, "STEP",                            \
                    "step of pld's grid, 1e-4 for the reference's; 1e-4 or finer by default",      \
                    1e-9, 1),                                                                      \
        CHOICE_REAL("pld-tail", &(c).options.grid.tail, "MASS",                                    \
                    "mass beyond each end of pld's grid; 9.6e-23, or less for small deltas, by "   \
                    "default",                                                                     \
                    TACIT_PLD_TAIL_MIN, TACIT_PLD_TAIL_MAX)

void accountant_choice_defaults(accountant_choice *c);

/* Reads the words; TACIT_USAGE names the one that is wrong or of another accountant. */
tacit_status accountant_choice_read(accountant_choice *c, tacit_error *err) TACIT_MUST_CHECK;

#endif
