/* tacit-client enroll */
#include "client/client_commands.h"

#include "client/enroll.h"
#include "client/session.h"
#include "common/file.h"
#include "common/json_print.h"
#include "common/key_text.h"
#include "common/log.h"
#include "common/options.h"
#include "common/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE_MS 3000
#define KEY_FILE_MAX 4096

static tacit_status print_device(const client *c, bool json, tacit_error *err)
{
    char device[2 * TACIT_DEVICE_BYTES + 1];
    tacit_hex(device, c->enrolment.device, TACIT_DEVICE_BYTES);
    if (!json) {
        printf("enrolled with %s as device %s\n", c->config.server, device);
        fflush(stdout); /* before what try_server may say */
        return TACIT_OK;
    }
    json_t *root = json_pack("{s:s, s:s, s:I}", "device", device, "server", c->config.server,
                             "entry", (json_int_t)c->enrolment.entry_index);
    return tacit_json_print(root, TACIT_JSON_DIGITS, err);
}

/* Enrolment has a port of its own, so it says nothing about the one that 'run' will use. */
static void try_server(client *c)
{
    client_session *session = NULL;
    tacit_error err = {0};
    tacit_status status = client_session_open(&session, c, SESSION_DEVICE, PROBE_MS, &err);
    if (status == TACIT_OK)
        status = client_session_greet(session, &err);
    if (status != TACIT_OK)
        tacit_log_warn("%s; if this is not the port for devices, correct 'server' in "
                       "%s/client.yaml",
                       err.message, c->dir);
    client_session_close(session);
}

/* The text itself, or a file that holds it. */
static tacit_status read_policy_key(const char *word, uint8_t key[TACIT_SIGN_KEY_BYTES],
                                    tacit_error *err)
{
    uint8_t *text = NULL;
    size_t size;
    if (strncmp(word, TACIT_KEY_POLICY "-", strlen(TACIT_KEY_POLICY) + 1) == 0)
        return tacit_key_text_read(key, TACIT_KEY_POLICY, word, err);
    tacit_status status =
        tacit_status_of_input(tacit_file_read(word, KEY_FILE_MAX, &text, &size, err), err);
    if (status == TACIT_OK)
        status = tacit_key_text_read(key, TACIT_KEY_POLICY, (const char *)text, err);
    if (status == TACIT_BAD_INPUT && text)
        tacit_fail_context(err, "%s: no public policy key, as 'tacit-client policy key' prints it",
                           word);
    free(text);
    return status;
}

tacit_status cmd_enroll(int argc, char **argv, tacit_error *err)
{
    client_enroll_request request = {.name = "", .patience_ms = 20000};
    client_config_choice choice = {0};
    tacit_option_list mmproj = {.count = 0};
    const char *dir = NULL, *policy_key = NULL;
    uint8_t digest[TACIT_DIGEST_BYTES], pinned[TACIT_SIGN_KEY_BYTES];
    bool json = false, help = false;
    client *c = NULL;
    const tacit_option table[] = {
        {"server", 0, TACIT_OPTION_TEXT, &request.server, true, "URL",
         "the server, tls+tcp://HOST:PORT", 0, 0},
        {"token", 0, TACIT_OPTION_TEXT, &request.token, true, "TOKEN",
         "one-time token of 'tacit-server token create'", 0, 0},
        {"dir", 0, TACIT_OPTION_TEXT, &dir, true, "DIR", "the device's folder", 0, 0},
        {"name", 0, TACIT_OPTION_TEXT, &request.name, false, "NAME",
         "what the operator calls this device", 0, 0},
        {"model", 0, TACIT_OPTION_TEXT, &choice.model_text, false, "FILE",
         "text model, for a new client.yaml", 0, 0},
        {"mmproj", 0, TACIT_OPTION_LIST, &mmproj, false, "FILE",
         "encoder of the model, for a new client.yaml", 0, 0},
        {"data", 0, TACIT_OPTION_TEXT, &choice.data, false, "FILE",
         "JSON Lines to train on, for a new client.yaml", 0, 0},
        {"policy-key", 0, TACIT_OPTION_TEXT, &policy_key, false, "PUBLIC",
         "of who may raise this device's cap: what 'policy key' printed, or a file with it", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "print JSON", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client enroll", NULL, 0, 0,
                               "makes this device's keys and joins a server"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    choice.mmproj = mmproj.item;
    choice.n_mmproj = mmproj.count;
    TACIT_TRY(client_enroll_check(&request, err), done);
    if (policy_key) {
        TACIT_TRY(read_policy_key(policy_key, pinned, err), done);
        request.policy_key = pinned;
    }
    TACIT_TRY(tacit_file_make_dir(dir, 0700, err), done);
    TACIT_TRY(client_config_create(dir, &choice, err), done);
    TACIT_TRY(client_open(&c, dir, CLIENT_WORKS, err), done);
    TACIT_TRY(client_check_files(c, digest, err), done);
    TACIT_TRY(client_enroll(c, &request, err), done);
    client_close(c);
    c = NULL;
    TACIT_TRY(client_open(&c, dir, CLIENT_FEDERATES, err), done);
    TACIT_TRY(print_device(c, json, err), done);
    try_server(c);
done:
    client_close(c);
    return status;
}
