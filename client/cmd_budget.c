/* tacit-client budget: what the account holds and for whom; the owner's acts on it. */
#include "client/client_commands.h"

#include "client/declaration.h"
#include "client/pinned_policy.h"
#include "client/receipts.h"
#include "client/recovery.h"
#include "client/restoration.h"
#include "common/json_print.h"
#include "common/options.h"
#include "common/text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct budget_words {
    const char *dir, *lineage, *signed_file;
    double cap;
    uint64_t patience;
    bool declare, recover, json;
} budget_words;

static tacit_status parse(budget_words *w, int argc, char **argv, bool *help, tacit_error *err)
{
    const tacit_option table[] = {
        {"dir", 0, TACIT_OPTION_TEXT, &w->dir, true, "DIR", "the device's folder", 0, 0},
        {"lineage", 0, TACIT_OPTION_TEXT, &w->lineage, false, "ID",
         "a lineage's 32 digits ('round list --json' of the server), with --cap", 0, 0},
        {"cap", 0, TACIT_OPTION_REAL, &w->cap, false, "E",
         "sub-cap of that lineage, before its first round; 1e-9 keeps it out", 1e-9, 1e6},
        {"declare", 0, TACIT_OPTION_FLAG, &w->declare, false, NULL,
         "sign the policy of client.yaml and bring it into the log: the way to raise a cap", 0, 0},
        {"signed", 0, TACIT_OPTION_TEXT, &w->signed_file, false, "FILE",
         "take a policy that the pinned policy key signed ('policy sign'); no server is needed", 0,
         0},
        {"recover", 0, TACIT_OPTION_FLAG, &w->recover, false, NULL,
         "the folder was restored from an older copy and no other copy works: take over what the "
         "log has",
         0, 0},
        {"patience", 0, TACIT_OPTION_U64, &w->patience, false, "SECONDS",
         "how long one request goes on trying (30)", 1, 86400},
        {"json", 0, TACIT_OPTION_FLAG, &w->json, false, NULL, "print JSON", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client budget", NULL, 0, 0,
                               "shows what this device's account holds; the owner's acts on it"};
    return tacit_options_parse(&usage, table, argc, argv, NULL, NULL, help, err);
}

static tacit_status check_words(const budget_words *w, uint8_t lineage[CLIENT_LINEAGE_BYTES],
                                tacit_error *err)
{
    if (!w->lineage != !(w->cap > 0))
        return tacit_fail(err, TACIT_USAGE, "--lineage and --cap go together");
    if ((w->lineage != NULL) + (w->signed_file != NULL) + w->declare + w->recover > 1)
        return tacit_fail(err, TACIT_USAGE,
                          "--lineage, --declare, --signed and --recover: one at a time");
    if (w->lineage && !tacit_unhex(lineage, CLIENT_LINEAGE_BYTES, w->lineage))
        return tacit_fail(err, TACIT_USAGE,
                          "--lineage: expected 32 hexadecimal digits, found "
                          "'%.80s'",
                          w->lineage);
    return TACIT_OK;
}

/* --- acts --- */

static tacit_status act_with_server(client *c, const budget_words *w, tacit_error *err)
{
    client_session *session = NULL;
    size_t taken;
    bool again;
    tacit_status status = client_session_open(&session, c, SESSION_DEVICE, w->patience * 1000, err);
    if (status == TACIT_OK && w->declare) /* as 'run' does: own entries may rest on either */
        status = client_redeclare(c, session, &again, err);
    if (status == TACIT_OK && w->declare)
        status = pinned_policy_bring(c, session, err);
    if (status == TACIT_OK)
        status = w->declare ? client_declare_policy(c, session, err)
                            : client_recover(c, session, &taken, err);
    if (status == TACIT_OK)
        status = receipts_sync(c, session, err);
    client_session_close(session);
    return status;
}

static tacit_status act(client *c, const budget_words *w, const uint8_t *lineage, tacit_error *err)
{
    if (w->declare || w->recover)
        return act_with_server(c, w, err);
    if (w->signed_file)
        return pinned_policy_take_file(c, w->signed_file, err);
    if (!w->lineage)
        return TACIT_OK;
    if (!c->account)
        return tacit_fail(err, TACIT_CONFLICT, "%s: there is no account yet; enrol first", c->dir);
    return tacit_account_set_lineage_cap(c->account, lineage, w->cap, err);
}

/* --- showing --- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static tacit_status add_lineages(json_t *root, client *c, tacit_error *err)
{
    tacit_lineage_share *share;
    size_t n;
    json_t *list = json_array();
    json_object_set_new(root, "lineages", list);
    tacit_status status = tacit_account_lineages(c->account, &share, &n, err);
    for (size_t i = 0; i < n && status == TACIT_OK; i++) {
        char hex[2 * CLIENT_LINEAGE_BYTES + 1];
        tacit_hex(hex, share[i].lineage, sizeof share[i].lineage);
        json_array_append_new(list, json_pack("{s:s, s:o, s:b}", "lineage", hex, "epsilon_cap",
                                              number(share[i].epsilon_cap), "reserved",
                                              share[i].reserved));
    }
    free(share);
    return status;
}

static tacit_status collect(json_t *root, client *c, tacit_error *err)
{
    tacit_account_status a;
    double window;
    if (!c->account)
        return tacit_fail(err, TACIT_CONFLICT, "%s: there is no account yet; enrol first", c->dir);
    tacit_status status = tacit_account_status_get(c->account, &a, err);
    if (status == TACIT_OK)
        status = tacit_account_window(c->account, &window, err);
    if (status != TACIT_OK)
        return status;
    json_object_set_new(root, "epsilon", number(a.epsilon));
    json_object_set_new(root, "epsilon_cap", number(a.policy.epsilon_cap));
    json_object_set_new(root, "remaining", number(a.remaining));
    json_object_set_new(root, "delta", number(a.policy.delta));
    json_object_set_new(root, "lost", json_boolean(a.lost));
    json_object_set_new(root, "window_epsilon", number(a.policy.window_epsilon));
    json_object_set_new(root, "window_reserves",
                        json_integer((json_int_t)a.policy.window_reserves));
    json_object_set_new(root, "window_spent", number(window));
    return add_lineages(root, c, err);
}

static double real_of(json_t *root, const char *key)
{
    return json_number_value(json_object_get(root, key));
}

static void print_people(json_t *root)
{
    size_t i;
    json_t *l;
    printf("epsilon      %.6g of %.6g at delta %.3g, %.6g left%s\n", real_of(root, "epsilon"),
           real_of(root, "epsilon_cap"), real_of(root, "delta"), real_of(root, "remaining"),
           json_is_true(json_object_get(root, "lost")) ? " (the account is lost)" : "");
    if (real_of(root, "window_reserves") > 0)
        printf("window       %.6g for any %g reserves in a row; before the next one %.6g\n",
               real_of(root, "window_epsilon"), real_of(root, "window_reserves"),
               real_of(root, "window_spent"));
    json_array_foreach(json_object_get(root, "lineages"), i, l)
    {
        printf("lineage      %s holds %.6g%s\n", json_string_value(json_object_get(l, "lineage")),
               real_of(l, "epsilon_cap"),
               json_is_true(json_object_get(l, "reserved")) ? "" : ", nothing reserved yet");
    }
}

static tacit_status show(client *c, bool json, tacit_error *err)
{
    json_t *root = json_object();
    tacit_status status = collect(root, c, err);
    if (status == TACIT_OK && json)
        status = tacit_json_print(json_incref(root), TACIT_JSON_DIGITS, err);
    else if (status == TACIT_OK)
        print_people(root);
    json_decref(root);
    return status;
}

tacit_status cmd_budget(int argc, char **argv, tacit_error *err)
{
    budget_words w = {.patience = 30};
    uint8_t lineage[CLIENT_LINEAGE_BYTES];
    bool help = false;
    client *c = NULL;
    tacit_status status = parse(&w, argc, argv, &help, err);
    if (status != TACIT_OK || help)
        return status;
    TACIT_TRY(check_words(&w, lineage, err), done);
    client_need need = w.declare || w.recover || w.signed_file ? CLIENT_FEDERATES
                       : w.lineage                             ? CLIENT_WORKS
                                                               : CLIENT_READS;
    TACIT_TRY(client_open(&c, w.dir, need, err), done);
    TACIT_TRY(act(c, &w, lineage, err), done);
    TACIT_TRY(show(c, w.json, err), done);
done:
    client_close(c);
    return status;
}
