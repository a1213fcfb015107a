/* tacit-client run */
#include "client/client_commands.h"

#include "client/agent.h"
#include "common/log.h"
#include "common/options.h"
#include "common/text.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
    agent_interrupt();
}

static void watch_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static tacit_status check_files(client *c, tacit_error *err)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    char hex[2 * TACIT_DIGEST_BYTES + 1];
    tacit_status status = client_check_files(c, digest, err);
    if (status != TACIT_OK)
        return status;
    tacit_hex(hex, digest, sizeof digest);
    tacit_log_info("base %.16s..., server %s", hex, c->config.server);
    return TACIT_OK;
}

tacit_status cmd_agent(int argc, char **argv, tacit_error *err)
{
    agent_setup setup = {.once = false};
    const char *dir = NULL;
    bool help = false;
    uint64_t patience = 30;
    client *c = NULL;
    const tacit_option table[] = {
        {"dir", 0, TACIT_OPTION_TEXT, &dir, true, "DIR", "the device's folder", 0, 0},
        {"once", 0, TACIT_OPTION_FLAG, &setup.once, false, NULL,
         "end after one completed round or one idle check-in", 0, 0},
        {"patience", 0, TACIT_OPTION_U64, &patience, false, "SECONDS",
         "how long one request goes on trying (30)", 1, 86400},
        {"json", 0, TACIT_OPTION_FLAG, &setup.json, false, NULL,
         "one JSON object per event on stdout", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client run", NULL, 0, 0,
                               "takes part in the server's rounds until it is stopped"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    setup.patience_ms = patience * 1000;
    watch_signals();
    TACIT_TRY(client_open(&c, dir, CLIENT_FEDERATES, err), done);
    c->stop = &stop_asked;
    TACIT_TRY(check_files(c, err), done);
    TACIT_TRY(agent_run(c, &setup, err), done);
    if (stop_asked)
        tacit_log_info("stopped; the next run continues from here");
done:
    client_close(c);
    return status;
}
