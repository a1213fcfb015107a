#include "common/tls_gate.h"

#include "common/clock.h"
#include "common/log.h"

/* Far above what nng's own threads need; they never wait for a peer here. */
enum { WAIT_MS = 10000 };

void tls_gate_init(tls_gate *gate)
{
    *gate = (tls_gate){0};
    pthread_mutex_init(&gate->lock, NULL);
    tacit_clock_condition_init(&gate->changed);
}

void tls_gate_fini(tls_gate *gate)
{
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
}

/* Adds one to a count unless the gate is shut. */
static bool count_in(tls_gate *gate, size_t *count)
{
    pthread_mutex_lock(&gate->lock);
    bool is_open = !gate->shut;
    *count += is_open;
    pthread_mutex_unlock(&gate->lock);
    return is_open;
}

static void count_out(tls_gate *gate, size_t *count)
{
    pthread_mutex_lock(&gate->lock);
    if (--*count == 0)
        pthread_cond_signal(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

bool tls_gate_enter(tls_gate *gate)
{
    return count_in(gate, &gate->connections);
}

void tls_gate_leave(tls_gate *gate)
{
    count_out(gate, &gate->connections);
}

bool tls_gate_set_off(tls_gate *gate)
{
    return count_in(gate, &gate->under_way);
}

void tls_gate_arrive(tls_gate *gate)
{
    count_out(gate, &gate->under_way);
}

/* With the lock held. Gives up rather than hang: what is lost then is said. */
static void wait_none(tls_gate *gate, const size_t *count, const char *what)
{
    struct timespec until = tacit_clock_after_ms(WAIT_MS);
    while (*count > 0)
        if (pthread_cond_timedwait(&gate->changed, &gate->lock, &until) != 0)
            break;
    if (*count > 0)
        tacit_log_warn(
            "closing a link: %zu TLS connections are %s after %d ms; their memory may be "
            "lost",
            *count, what, WAIT_MS);
}

void tls_gate_close(tls_gate *gate, nng_socket socket)
{
    pthread_mutex_lock(&gate->lock);
    gate->shut = true;
    wait_none(gate, &gate->under_way, "still being made");
    pthread_mutex_unlock(&gate->lock);
    nng_close(socket);
    pthread_mutex_lock(&gate->lock);
    wait_none(gate, &gate->connections, "not freed");
    gate->shut = false;
    pthread_mutex_unlock(&gate->lock);
}
