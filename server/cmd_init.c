#include "server/commands_server.h"

#include "common/certificate.h"
#include "common/log.h"
#include "engine/model.h"
#include "server/gate_data.h"
#include "server/server.h"
#include "server/server_init.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Paths are meant from where they were typed; server.yaml's are relative to the server's folder.
 * Turns `*path` into the absolute one, in `memory`. */
static tacit_status find_file(const char **path, char memory[PATH_MAX], tacit_error *err)
{
    if (*path && (!realpath(*path, memory) || access(memory, R_OK) != 0))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: cannot read: %s; name a file that is there",
                          *path, strerror(errno));
    *path = *path ? memory : NULL;
    return TACIT_OK;
}

typedef struct init_files {
    char model[PATH_MAX], gate[PATH_MAX], mmproj[TACIT_OPTION_LIST_MAX][PATH_MAX];
} init_files;

static tacit_status find_files(init_files *f, const char **model, const char **gate,
                               tacit_option_list *mmproj, tacit_error *err)
{
    tacit_status status = find_file(model, f->model, err);
    if (status == TACIT_OK)
        status = find_file(gate, f->gate, err);
    for (size_t i = 0; status == TACIT_OK && i < mmproj->count; i++)
        status = find_file(&mmproj->item[i], f->mmproj[i], err);
    return status;
}

/* What 'run' would refuse is refused before there is a folder. */
static tacit_status check_contents(const server_config_choice *choice, tacit_error *err)
{
    tacit_model *model = NULL;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; status == TACIT_OK && i < choice->n_names; i++)
        status = tacit_server_name_check(choice->names[i], err);
    if (status == TACIT_OK)
        status =
            server_model_load(&model, choice->model_text, choice->mmproj, choice->n_mmproj, err);
    tacit_model_free(model);
    if (status == TACIT_OK && choice->gate_data)
        status = gate_data_check(choice->gate_data, err);
    return tacit_status_of_input(status, err);
}

static tacit_status make_folder(const char *dir, const char *origin, const char *operator_key,
                                server_config_choice *choice, tacit_option_list *mmproj,
                                tacit_error *err)
{
    init_files *files = calloc(1, sizeof *files);
    if (!files)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", dir);
    tacit_status status = find_files(files, &choice->model_text, &choice->gate_data, mmproj, err);
    if (status == TACIT_OK)
        status = check_contents(choice, err);
    if (status == TACIT_OK)
        status = server_init(dir, origin, operator_key, choice, err);
    free(files);
    return status;
}

tacit_status cmd_init(int argc, char **argv, tacit_error *err)
{
    char origin[TACIT_NOTE_NAME_MAX + 1] = "tacit/";
    const char *host = "0.0.0.0", *model = NULL, *gate = NULL, *named = NULL, *operator_key = NULL,
               *dir;
    uint64_t port = 7443, enrol_port = 7444;
    tacit_option_list names = {0}, mmproj = {0};
    bool help;
    const tacit_option table[] = {
        {.name = "host",
         .kind = TACIT_OPTION_TEXT,
         .to = &host,
         .value = "ADDRESS",
         .help = "address to listen on (0.0.0.0)"},
        {.name = "port",
         .kind = TACIT_OPTION_U64,
         .to = &port,
         .value = "PORT",
         .help = "for devices (7443; 0: a free one)",
         .min = 0,
         .max = 65535},
        {.name = "enrol-port",
         .kind = TACIT_OPTION_U64,
         .to = &enrol_port,
         .value = "PORT",
         .help = "for enrolment (7444; 0: a free one)",
         .min = 0,
         .max = 65535},
        {.name = "name",
         .kind = TACIT_OPTION_LIST,
         .to = &names,
         .value = "NAME",
         .help = "how devices call this host, for the certificate"},
        {.name = "model",
         .letter = 'm',
         .kind = TACIT_OPTION_TEXT,
         .to = &model,
         .value = "TEXT.gguf",
         .help = "the base model of the devices",
         .required = true},
        {.name = "mmproj",
         .kind = TACIT_OPTION_LIST,
         .to = &mmproj,
         .value = "FILE",
         .help = "its encoders"},
        {.name = "gate",
         .kind = TACIT_OPTION_TEXT,
         .to = &gate,
         .value = "DATA.jsonl",
         .help = "held-out set that adapters must pass"},
        {.name = "origin",
         .kind = TACIT_OPTION_TEXT,
         .to = &named,
         .value = "NAME",
         .help = "name of the log (tacit/HOSTNAME)"},
        {.name = "operator-key",
         .kind = TACIT_OPTION_TEXT,
         .to = &operator_key,
         .value = "FILE",
         .help =
             "where the key that vouches for a restored log is, or is made; kept off this host"},
        {NULL},
    };
    const tacit_usage usage = {"tacit-server init", "DIR", 1, 1, "makes a server's folder"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, &dir, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if (named)
        snprintf(origin, sizeof origin, "%s", named);
    else if (gethostname(origin + strlen(origin), sizeof origin - strlen(origin) - 1) != 0)
        snprintf(origin, sizeof origin, "tacit/server");
    if (names.count == 0)
        names.item[names.count++] = strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : host;
    server_config_choice choice = {host,  port,        enrol_port,   names.item, names.count,
                                   model, mmproj.item, mmproj.count, gate};
    status = make_folder(dir, origin, operator_key, &choice, &mmproj, err);
    if (status == TACIT_OK)
        printf("%s is ready. Edit server.yaml, move %s to offline media, then\n"
               "  tacit-server run --dir %s\n  tacit-server token create --dir %s\n",
               dir, operator_key ? operator_key : "keys/operator.key", dir, dir);
    return status;
}

/* Lock-free, so a signal handler may set it. */
static atomic_bool stop_asked;
static void ask_stop(int number)
{
    (void)number;
    atomic_store(&stop_asked, true);
}

tacit_status cmd_serve(int argc, char **argv, tacit_error *err)
{
    const char *dir = NULL;
    bool help;
    const tacit_option table[] = {
        {.name = "dir",
         .kind = TACIT_OPTION_TEXT,
         .to = &dir,
         .value = "DIR",
         .help = "folder made by init",
         .required = true},
        {NULL},
    };
    const tacit_usage usage = {"tacit-server run", NULL, 0, 0,
                               "serves a folder until it is told to stop"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    struct sigaction action = {.sa_handler = ask_stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    server *s = NULL;
    status = server_open(&s, dir, err);
    if (status == TACIT_OK)
        status = server_run(s, &stop_asked, err);
    server_close(s);
    return status;
}
