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

/* Rows for a table of options; `c` is an accountant_choice. */
#define ACCOUNTANT_CHOICE_ROWS(c)                                                                  \
    {"accountant",                                                                                 \
     0,                                                                                            \
     TACIT_OPTION_TEXT,                                                                            \
     &(c).accountant_word,                                                                         \
     false,                                                                                        \
     "WORD",                                                                                       \
     "pld, rdp (the default), rdp-compat or analytic",                                             \
     0,                                                                                            \
     0},                                                                                           \
        {"neighbours",                                                                             \
         0,                                                                                        \
         TACIT_OPTION_TEXT,                                                                        \
         &(c).neighbours_word,                                                                     \
         false,                                                                                    \
         "WORD",                                                                                   \
         "add-remove (the default) or replace-one",                                                \
         0,                                                                                        \
         0},                                                                                       \
        {"orders",                                                                                 \
         0,                                                                                        \
         TACIT_OPTION_TEXT,                                                                        \
         &(c).orders_word,                                                                         \
         false,                                                                                    \
         "A,B,...",                                                                                \
         "rdp's orders, above 1.01, ascending; 156 from 1.1 to 1024 by default",                   \
         0,                                                                                        \
         0},                                                                                       \
        {"pld-interval",                                                                           \
         0,                                                                                        \
         TACIT_OPTION_REAL,                                                                        \
         &(c).options.grid.interval,                                                               \
         false,                                                                                    \
         "STEP",                                                                                   \
         "step of pld's grid, 1e-4 for the reference's; 1e-4 or finer by default",                 \
         1e-9,                                                                                     \
         1},                                                                                       \
    {                                                                                              \
        "pld-tail", 0, TACIT_OPTION_REAL, &(c).options.grid.tail, false, "MASS",                   \
            "mass beyond each end of pld's grid; 9.6e-23 by default, less for small deltas",       \
            TACIT_PLD_TAIL_MIN, TACIT_PLD_TAIL_MAX                                                 \
    }

void accountant_choice_defaults(accountant_choice *c);

/* Reads the words; TACIT_USAGE names the one that is wrong or of another accountant. */
tacit_status accountant_choice_read(accountant_choice *c, tacit_error *err) TACIT_MUST_CHECK;

#endif
