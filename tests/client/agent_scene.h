/* A device and a server that lies on request (fake_server.h), and the agent between them. Each test
 * program of the agent includes it once, after cmocka.h. */
#ifndef TACIT_TESTS_AGENT_SCENE_H
#define TACIT_TESTS_AGENT_SCENE_H

#include "client/activation.h"
#include "client/agent.h"
#include "fake_server.h"

typedef struct scene {
    fake_server server;
    fake_device device;
} scene;

static inline void begin(scene *s, size_t records)
{
    fake_start(&s->server);
    fake_device_make(&s->device, &s->server.tiny, records);
    fake_device_enrol(&s->device, &s->server);
    s->server.n_calls = 0;
}

static inline void end(scene *s)
{
    fake_device_drop(&s->device);
    fake_stop(&s->server);
}

static inline tacit_status run_once(scene *s, uint64_t patience_ms)
{
    agent_setup setup = {.once = true, .patience_ms = patience_ms};
    fake_device *d = &s->device;
    fake_device_open(d, CLIENT_FEDERATES);
    tacit_status status = agent_run(d->client, &setup, &d->err);
    fake_device_close(d);
    return status;
}

static inline void expect_run(scene *s, tacit_status expected)
{
    tacit_status found = run_once(s, 10000);
    if (found != expected)
        fail_msg("expected %s, found %s: %s", tacit_status_name(expected), tacit_status_name(found),
                 s->device.err.message);
}

static inline size_t count_calls(const scene *s, uint32_t method)
{
    size_t n = 0;
    for (size_t i = 0; i < s->server.n_calls; i++)
        n += s->server.call[i].method == method;
    return n;
}

static inline tacit_account_status account_of(scene *s)
{
    tacit_account_status a;
    fake_device_open(&s->device, CLIENT_READS);
    OK(tacit_account_status_get(s->device.client->account, &a, &s->device.err));
    fake_device_close(&s->device);
    return a;
}

static inline uint64_t active_version(scene *s)
{
    active_adapter current, previous;
    fake_device_open(&s->device, CLIENT_READS);
    OK(active_adapter_read(s->device.client, &current, &previous, &s->device.err));
    fake_device_close(&s->device);
    return current.exists ? current.version : 0;
}

#define CALLS(name) count_calls(&s, TACIT__METHOD__METHOD_##name)
#endif
