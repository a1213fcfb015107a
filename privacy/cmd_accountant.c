#include "privacy/cmd_accountant.h"

void accountant_choice_defaults(accountant_choice *c)
{
    *c = (accountant_choice){.accountant_word = "pld", .neighbours_word = "add-remove"};
}

tacit_status accountant_choice_read(accountant_choice *c, tacit_error *err)
{
    tacit_status status;
    const tacit_accountant *found;
    TACIT_TRY(tacit_accountant_find(&found, c->accountant_word, err), out);
    TACIT_TRY(tacit_neighbours_parse(&c->neighbours, c->neighbours_word, err), out);
    if (c->orders_word) {
        TACIT_TRY(tacit_orders_parse(c->orders, &c->options.n_orders, c->orders_word, err), out);
        c->options.orders = c->orders;
    }
    status = tacit_accountant_with(&c->accountant, found, &c->options, err);
out:
    return status;
}
