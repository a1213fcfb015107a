#include "common/link_local.h"

#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    SLICE_MS = 50,   /* how often a waiting transfer looks at its stop flag */
    PEER_MS = 10000, /* for the peer to send its request, and to take its reply */
    WAITING = 64,
    WORKERS = 2,
    BACKLOG = 128
};

/* --- Transfers with a deadline --- */

typedef enum moved { MOVED, MOVED_CLOSED, MOVED_LATE, MOVED_STOPPED } moved;

typedef struct transfer {
    int fd;
    uint64_t deadline_ms;
    atomic_bool *stop;
} transfer;

static moved wait_ready(const transfer *t, short events)
{
    for (;;) {
        struct pollfd p = {.fd = t->fd, .events = events};
        if (atomic_load(t->stop))
            return MOVED_STOPPED;
        if (tacit_clock_monotonic_ms() >= t->deadline_ms)
            return MOVED_LATE;
        int n = poll(&p, 1, SLICE_MS);
        if (n > 0)
            return MOVED;
        if (n < 0 && errno != EINTR)
            return MOVED_CLOSED;
    }
}

/* One step; the number of bytes, 0 to try again, negative at the end. */
static ssize_t outcome(ssize_t n)
{
    if (n > 0)
        return n;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static moved send_all(const transfer *t, const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        moved ready = wait_ready(t, POLLOUT);
        if (ready != MOVED)
            return ready;
        ssize_t n = outcome(send(t->fd, data + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT));
        if (n < 0)
            return MOVED_CLOSED;
        at += (size_t)n;
    }
    return MOVED;
}

static moved receive_all(const transfer *t, uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        moved ready = wait_ready(t, POLLIN);
        if (ready != MOVED)
            return ready;
        ssize_t n = outcome(recv(t->fd, data + at, size - at, MSG_DONTWAIT));
        if (n < 0)
            return MOVED_CLOSED;
        at += (size_t)n;
    }
    return MOVED;
}

static moved send_message(const transfer *t, const void *data, size_t size)
{
    uint8_t length[4];
    tacit_store_u32(length, (uint32_t)size);
    moved result = send_all(t, length, sizeof length);
    return result == MOVED ? send_all(t, data, size) : result;
}

/* Into an empty buffer with cap TACIT_MESSAGE_MAX, checked before anything is allocated. */
static moved receive_message(const transfer *t, tacit_buffer *out)
{
    uint8_t length[4], part[4096];
    moved result = receive_all(t, length, sizeof length);
    size_t left = result == MOVED ? tacit_load_u32(length) : 0;
    if (left > TACIT_MESSAGE_MAX)
        return MOVED_CLOSED;
    while (result == MOVED && left > 0) {
        size_t n = left < sizeof part ? left : sizeof part;
        result = receive_all(t, part, n);
        if (result == MOVED && tacit_buffer_append(out, part, n) != TACIT_OK)
            result = MOVED_CLOSED;
        left -= n;
    }
    return result;
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, strnlen(path, sizeof at.sun_path - 1));
    return at;
}

/* --- Asking --- */

static tacit_status connect_local(const char *path, int *fd, tacit_error *err)
{
    struct sockaddr_un at = address_of(path);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return tacit_fail(err, TACIT_FAILED, "%s: no socket: %s", path, strerror(errno));
    if (connect(*fd, (struct sockaddr *)&at, sizeof at) == 0)
        return TACIT_OK;
    int code = errno;
    close(*fd);
    *fd = -1;
    if (code == EACCES || code == EPERM)
        return tacit_fail(err, TACIT_REFUSED, "%s: only the server's user and root may ask here",
                          path);
    return tacit_fail(err, TACIT_UNREACHABLE, "%s: %s: is the server running?", path,
                      strerror(code));
}

static tacit_status explain(const char *path, moved result, tacit_error *err)
{
    if (result == MOVED_STOPPED)
        return tacit_fail(err, TACIT_AGAIN, "%s: interrupted", path);
    return tacit_fail(err, TACIT_UNREACHABLE, "%s: %s", path,
                      result == MOVED_LATE ? "no reply in time" : "the connection was lost");
}

tacit_status local_call(const char *path, const void *request, size_t size, uint32_t reply_ms,
                        atomic_bool *stop, tacit_buffer *reply, tacit_error *err)
{
    int fd;
    tacit_status status = connect_local(path, &fd, err);
    if (status != TACIT_OK)
        return status;
    transfer t = {fd, tacit_clock_monotonic_ms() + reply_ms, stop};
    moved result = send_message(&t, request, size);
    if (result == MOVED)
        result = receive_message(&t, reply);
    close(fd);
    return result == MOVED ? TACIT_OK : explain(path, result, err);
}

/* --- Answering --- */

struct local_server {
    tacit_handler handler;
    void *ctx;
    struct sockaddr_un at;
    int fd, wake;
    bool bound;
    atomic_bool stopping;
    pthread_t acceptor, *workers;
    bool has_acceptor;
    size_t worker_count;
    pthread_mutex_t lock;
    pthread_cond_t work, room;
    int *waiting; /* ring of accepted sockets */
    size_t first, count, most;
    tacit_listener_counts counts;
};

static void serve_one(local_server *s, int fd)
{
    tacit_buffer request = {.cap = TACIT_MESSAGE_MAX}, reply = {.cap = TACIT_MESSAGE_MAX};
    transfer t = {fd, tacit_clock_monotonic_ms() + PEER_MS, &s->stopping};
    bool received = receive_message(&t, &request) == MOVED;
    bool answers = received && s->handler(s->ctx, request.data, request.size, &reply);
    atomic_bool never = false; /* a reply is sent even while the server stops */
    t = (transfer){fd, tacit_clock_monotonic_ms() + PEER_MS, &never};
    if (answers)
        (void)send_message(&t, reply.data, reply.size);
    pthread_mutex_lock(&s->lock);
    s->counts.requests += received;
    s->counts.dropped += received && !answers;
    s->counts.connections--;
    pthread_mutex_unlock(&s->lock);
    tacit_buffer_free(&request);
    tacit_buffer_free(&reply);
    close(fd);
}

static int take_waiting(local_server *s)
{
    int fd = -1;
    pthread_mutex_lock(&s->lock);
    while (s->count == 0 && !atomic_load(&s->stopping))
        pthread_cond_wait(&s->work, &s->lock);
    if (s->count && !atomic_load(&s->stopping)) {
        fd = s->waiting[s->first];
        s->first = (s->first + 1) % s->most;
        s->count--;
        pthread_cond_signal(&s->room);
    }
    pthread_mutex_unlock(&s->lock);
    return fd;
}

static void *work(void *arg)
{
    local_server *s = arg;
    for (int fd = take_waiting(s); fd >= 0; fd = take_waiting(s))
        serve_one(s, fd);
    return NULL;
}

/* Waits for a place: later clients wait in the kernel's backlog meanwhile. */
static void enqueue(local_server *s, int fd)
{
    pthread_mutex_lock(&s->lock);
    while (s->count == s->most && !atomic_load(&s->stopping))
        pthread_cond_wait(&s->room, &s->lock);
    bool taken = s->count < s->most;
    if (taken) {
        s->waiting[(s->first + s->count++) % s->most] = fd;
        s->counts.accepted++;
        s->counts.connections++;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    if (!taken)
        close(fd);
}

static void *accept_all(void *arg)
{
    local_server *s = arg;
    while (!atomic_load(&s->stopping)) {
        struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->wake, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 || !(p[0].revents & POLLIN))
            continue;
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            enqueue(s, fd);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            tacit_clock_sleep_ms(SLICE_MS); /* until descriptors are free again */
    }
    return NULL;
}

/* True when the file is a socket that nobody serves any more. */
static bool is_stale(const struct sockaddr_un *at)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 &&
                 errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return stale;
}

static tacit_status bind_socket(local_server *s, tacit_error *err)
{
    const struct sockaddr *at = (const struct sockaddr *)&s->at;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    s->wake = eventfd(0, EFD_CLOEXEC);
    if (s->fd < 0 || s->wake < 0)
        return tacit_fail(err, TACIT_FAILED, "no socket: %s", strerror(errno));
    /* Linux gives the file the mode of the socket, so it is never open to others. */
    int rv = fchmod(s->fd, 0600) ? -1 : bind(s->fd, at, sizeof s->at);
    if (rv != 0 && errno == EADDRINUSE && is_stale(&s->at) && unlink(s->at.sun_path) == 0)
        rv = bind(s->fd, at, sizeof s->at);
    s->bound = rv == 0;
    if (rv == 0 && chmod(s->at.sun_path, 0600) == 0 && listen(s->fd, BACKLOG) == 0)
        return TACIT_OK;
    if (errno == EADDRINUSE)
        return tacit_fail(err, TACIT_CONFLICT, "%s: is a server running there already?",
                          s->at.sun_path);
    return tacit_fail(err, TACIT_FAILED, "%s: cannot listen: %s", s->at.sun_path, strerror(errno));
}

static tacit_status start_threads(local_server *s, size_t workers, tacit_error *err)
{
    s->has_acceptor = pthread_create(&s->acceptor, NULL, accept_all, s) == 0;
    for (; s->has_acceptor && s->worker_count < workers; s->worker_count++)
        if (pthread_create(&s->workers[s->worker_count], NULL, work, s) != 0)
            break;
    if (s->worker_count < workers)
        return tacit_fail(err, TACIT_FAILED, "%s: cannot start a thread", s->at.sun_path);
    return TACIT_OK;
}

tacit_status local_server_start(local_server **out, const char *path,
                                const tacit_listener_setup *setup, tacit_error *err)
{
    tacit_status status;
    size_t workers = setup->workers ? setup->workers : WORKERS;
    *out = NULL;
    local_server *s = calloc(1, sizeof *s);
    if (!s)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", path);
    s->fd = s->wake = -1;
    s->handler = setup->handler;
    s->ctx = setup->ctx;
    s->at = address_of(path);
    s->most = setup->max_connections ? setup->max_connections : WAITING;
    s->waiting = calloc(s->most, sizeof *s->waiting);
    s->workers = calloc(workers, sizeof *s->workers);
    atomic_init(&s->stopping, false);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->room, NULL);
    if (!s->waiting || !s->workers) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", path);
        goto failed;
    }
    TACIT_TRY(bind_socket(s, err), failed);
    TACIT_TRY(start_threads(s, workers, err), failed);
    *out = s;
    return TACIT_OK;
failed:
    local_server_stop(s);
    return status;
}

tacit_listener_counts local_server_count(local_server *s)
{
    pthread_mutex_lock(&s->lock);
    tacit_listener_counts counts = s->counts;
    pthread_mutex_unlock(&s->lock);
    return counts;
}

static void join_threads(local_server *s)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->stopping, true);
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&s->room);
    pthread_mutex_unlock(&s->lock);
    if (s->wake >= 0 && write(s->wake, &one, sizeof one) < 0)
        return; /* cannot be: the counter is far from full */
    if (s->has_acceptor)
        pthread_join(s->acceptor, NULL);
    for (size_t i = 0; i < s->worker_count; i++)
        pthread_join(s->workers[i], NULL);
}

void local_server_stop(local_server *s)
{
    if (!s)
        return;
    join_threads(s);
    for (; s->count; s->count--, s->first = (s->first + 1) % s->most)
        close(s->waiting[s->first]);
    if (s->bound)
        unlink(s->at.sun_path);
    if (s->fd >= 0)
        close(s->fd);
    if (s->wake >= 0)
        close(s->wake);
    pthread_cond_destroy(&s->room);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    free(s->workers);
    free(s->waiting);
    free(s);
}
