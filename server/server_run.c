/* Listening and working until told to stop. */
#include "server/server.h"

#include "common/clock.h"
#include "common/file.h"
#include "common/link.h"
#include "common/log.h"
#include "common/secret.h"
#include "server/control.h"
#include "server/request_gate.h"
#include "server/round_machine.h"
#include "server/server_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Two listeners full of connections, and what else a server opens. */
static void raise_file_limit(const server *s)
{
    struct rlimit files;
    rlim_t needed = (rlim_t)(2 * s->config.max_connections + 512);
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= needed)
        return;
    files.rlim_cur = needed < files.rlim_max ? needed : files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur < needed)
        tacit_log_warn("listen.max_connections: %llu would need %llu open files, the limit is %llu",
                       (unsigned long long)s->config.max_connections, (unsigned long long)needed,
                       (unsigned long long)files.rlim_cur);
}

/* Bytes of a request where anybody may knock: hello, enrolment and renewal are far smaller. */
enum { ENROLMENT_MAX = 16384 };

typedef struct serving {
    tacit_secret tls_key;
    char *chain; /* the server's certificate, issued at every start and at half of its life */
    tacit_certificate_info certificate;
    uint16_t port, enrol_port; /* real ones: a new listener takes the place of the old */
    tacit_listener *devices, *enrolment, *control;
} serving;

static bool serve_device(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    return gate_serve(ctx, GATE_DEVICES, request, size, reply);
}

static bool serve_enrolment(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    return gate_serve(ctx, GATE_ENROLMENT, request, size, reply);
}

static tacit_status certify(server *s, serving *v, tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    char *chain = NULL;
    tacit_status status = TACIT_OK;
    if (!v->tls_key.data) {
        TACIT_TRY(server_path(s, path, "keys/tls.key", err), done);
        TACIT_TRY(tacit_tls_key_load(&v->tls_key, path, err), done);
    }
    pthread_mutex_lock(&s->ca_lock);
    status = tacit_ca_issue_server(s->ca, (const char *)v->tls_key.data,
                                   (const char *const *)(uintptr_t)s->config.names.item,
                                   s->config.names.count, &chain, err);
    pthread_mutex_unlock(&s->ca_lock);
    if (status == TACIT_OK)
        status = tacit_certificate_read(chain, &v->certificate, err);
    if (status != TACIT_OK)
        goto done;
    free(v->chain);
    v->chain = chain;
    chain = NULL;
done:
    free(chain);
    return status;
}

static tacit_status listen_on(server *s, serving *v, uint64_t port, bool mutual,
                              tacit_listener **out, tacit_error *err)
{
    char url[512];
    bool v6 = strchr(s->config.host, ':') != NULL;
    snprintf(url, sizeof url, "tls+tcp://%s%s%s:%llu", v6 ? "[" : "", s->config.host, v6 ? "]" : "",
             (unsigned long long)port);
    tacit_listener_setup setup = {.url = url,
                                  .certificate_pem = v->chain,
                                  .key_pem = (const char *)v->tls_key.data,
                                  .roots_pem = mutual ? tacit_ca_root_pem(s->ca) : NULL,
                                  .workers = s->config.workers,
                                  .max_request = mutual ? 0 : ENROLMENT_MAX,
                                  .max_connections = s->config.max_connections,
                                  .max_per_address = s->config.max_per_address,
                                  .handler = mutual ? serve_device : serve_enrolment,
                                  .ctx = s};
    return tacit_listener_start(out, &setup, err);
}

static tacit_status listen_control(server *s, serving *v, tacit_error *err)
{
    char path[SERVER_PATH_MAX], url[SERVER_PATH_MAX + 16];
    tacit_status status = server_path(s, path, "control.sock", err);
    if (status != TACIT_OK)
        return status;
    snprintf(url, sizeof url, "ipc://%s", path);
    tacit_listener_setup setup = {.url = url,
                                  .workers = CONTROL_WORKERS,
                                  .max_connections = 64,
                                  .handler = control_serve,
                                  .ctx = s};
    return tacit_listener_start(&v->control, &setup, err);
}

/* The ports in one file that scripts read: "PORT ENROL_PORT". */
static tacit_status write_address(server *s, const serving *v, tacit_error *err)
{
    char path[SERVER_PATH_MAX], line[64];
    int n = snprintf(line, sizeof line, "%u %u\n", tacit_listener_port(v->devices),
                     tacit_listener_port(v->enrolment));
    tacit_status status = server_path(s, path, "address", err);
    return status == TACIT_OK ? tacit_file_write(path, line, (size_t)n, 0644, err) : status;
}

static tacit_status listen_to_devices(server *s, serving *v, tacit_error *err)
{
    tacit_status status =
        listen_on(s, v, v->port ? v->port : s->config.port, true, &v->devices, err);
    if (status == TACIT_OK)
        v->port = tacit_listener_port(v->devices);
    return status;
}

static tacit_status listen_to_newcomers(server *s, serving *v, tacit_error *err)
{
    tacit_status status = listen_on(s, v, v->enrol_port ? v->enrol_port : s->config.enrol_port,
                                    false, &v->enrolment, err);
    if (status == TACIT_OK)
        s->enrol_port = v->enrol_port = tacit_listener_port(v->enrolment);
    return status;
}

/* The enrolment port is known before anybody can ask for a token. */
static tacit_status start(server *s, serving *v, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(certify(s, v, err), done);
    raise_file_limit(s);
    TACIT_TRY(listen_to_newcomers(s, v, err), done);
    TACIT_TRY(round_machine_start(&s->rounds, s, err), done);
    TACIT_TRY(listen_to_devices(s, v, err), done);
    TACIT_TRY(listen_control(s, v, err), done);
    status = write_address(s, v, err);
done:
    return status;
}

/* A listener cannot change its certificate while it runs: at half of the certificate's life both
 * are replaced on their ports. Devices that miss a reply meanwhile ask again. A listener that
 * could not be started is tried again at the next turn. */
static tacit_status renew(server *s, serving *v, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    if (tacit_certificate_is_due(&v->certificate, tacit_clock_wall_ms())) {
        tacit_log_info("renewing the server's certificate");
        status = certify(s, v, err);
        if (status != TACIT_OK)
            return status;
        tacit_listener_stop(v->devices);
        tacit_listener_stop(v->enrolment);
        v->devices = v->enrolment = NULL;
    }
    if (!v->enrolment)
        status = listen_to_newcomers(s, v, err);
    if (status == TACIT_OK && !v->devices)
        status = listen_to_devices(s, v, err);
    return status;
}

#define TURN_MS 100

static void serve_until(server *s, serving *v, const atomic_bool *stop)
{
    tacit_error err;
    while (!atomic_load(stop)) {
        tacit_clock_sleep_ms(TURN_MS);
        if (renew(s, v, &err) != TACIT_OK) {
            tacit_log_error("listening: %s; trying again", err.message);
            tacit_clock_sleep_ms((uint64_t)10 * TURN_MS);
        }
    }
}

tacit_status server_run(server *s, const atomic_bool *stop, tacit_error *err)
{
    serving v = {0};
    tacit_status status = start(s, &v, err);
    if (status == TACIT_OK) {
        tacit_log_info("serving devices on %s, enrolment on port %u", tacit_listener_url(v.devices),
                       s->enrol_port);
        serve_until(s, &v, stop);
    }
    tacit_log_info("stopping");
    server_events_close(s->events);
    tacit_listener_stop(v.control);
    tacit_listener_stop(v.devices);
    tacit_listener_stop(v.enrolment);
    round_machine_stop(s->rounds);
    s->rounds = NULL;
    tacit_secret_free(&v.tls_key);
    free(v.chain);
    return status;
}
