/* Connections that end at every moment: nothing is left over, nobody waits for ever. What is left
 * is counted by OpenSSL itself, as SSL objects alive, and by the kernel, as open files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/certificate.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/link_channel.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <nng/nng.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GIVE_UP_MS = 20000, LARGE = 200000 };

static char folder[64];
static tacit_ca *ca, *other_ca;
static char *server_chain;
static tacit_secret server_key;
static tacit_tls *client_tls, *server_tls;

/* --- What is alive --- */

static atomic_int ssl_alive;

static void on_ssl_new(void *ssl, void *data, CRYPTO_EX_DATA *all, int index, long number, void *p)
{
    (void)ssl, (void)data, (void)all, (void)index, (void)number, (void)p;
    atomic_fetch_add(&ssl_alive, 1);
}

static void on_ssl_free(void *ssl, void *data, CRYPTO_EX_DATA *all, int index, long number, void *p)
{
    (void)ssl, (void)data, (void)all, (void)index, (void)number, (void)p;
    atomic_fetch_sub(&ssl_alive, 1);
}

static int files_at_start;

static int open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* nng closes files a moment after the stream that they belong to is freed. */
static void expect_nothing_left(void)
{
    uint64_t start = tacit_clock_monotonic_ms();
    assert_int_equal(atomic_load(&ssl_alive), 0);
    while (open_files() != files_at_start && tacit_clock_monotonic_ms() - start < GIVE_UP_MS)
        tacit_clock_sleep_ms(1);
    assert_int_equal(open_files(), files_at_start);
}

static tacit_ca *make_ca(const char *name)
{
    char path[128];
    tacit_ca *made;
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(tacit_file_make_dir(path, 0700, &err), TACIT_OK);
    assert_int_equal(tacit_ca_create(path, name, &err), TACIT_OK);
    assert_int_equal(tacit_ca_load(&made, path, &err), TACIT_OK);
    return made;
}

static void start_nng(void)
{
    nng_aio *aio;
    assert_int_equal(nng_aio_alloc(&aio, NULL, NULL), 0);
    nng_aio_free(aio);
}

static int setup(void **state)
{
    static const char *const names[] = {"127.0.0.1"};
    char path[128];
    tacit_error err;
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tacit-close-XXXXXX");
    if (!mkdtemp(folder) || SSL_get_ex_new_index(0, NULL, on_ssl_new, NULL, on_ssl_free) < 0)
        return -1;
    ca = make_ca("fleet");
    other_ca = make_ca("others");
    snprintf(path, sizeof path, "%s/key", folder);
    assert_int_equal(tacit_tls_key_create(path, &err), TACIT_OK);
    assert_int_equal(tacit_tls_key_load(&server_key, path, &err), TACIT_OK);
    assert_int_equal(
        tacit_ca_issue_server(ca, (const char *)server_key.data, names, 1, &server_chain, &err),
        TACIT_OK);
    tacit_tls_setup serve = {
        .server = true, .certificate_pem = server_chain, .key_pem = (const char *)server_key.data};
    tacit_tls_setup ask = {.roots_pem = tacit_ca_root_pem(ca), .peer_name = "127.0.0.1"};
    assert_int_equal(tacit_tls_new(&server_tls, &serve, &err), TACIT_OK);
    assert_int_equal(tacit_tls_new(&client_tls, &ask, &err), TACIT_OK);
    start_nng();
    files_at_start = open_files();
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    tacit_tls_free(server_tls);
    tacit_tls_free(client_tls);
    free(server_chain);
    tacit_secret_free(&server_key);
    tacit_ca_free(ca);
    tacit_ca_free(other_ca);
    nng_fini();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* --- Both sides --- */

static bool answer_large(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    static const uint8_t answer[LARGE];
    (void)request, (void)size;
    if (ctx)
        tacit_clock_sleep_ms(*(unsigned *)ctx);
    return tacit_buffer_append(reply, answer, sizeof answer) == TACIT_OK;
}

static tacit_listener *serve(unsigned *delay_ms)
{
    tacit_listener *l;
    tacit_error err = {0};
    tacit_listener_setup setup = {.url = "tls+tcp://127.0.0.1:0",
                                  .certificate_pem = server_chain,
                                  .key_pem = (const char *)server_key.data,
                                  .handler = answer_large,
                                  .ctx = delay_ms};
    tacit_status status = tacit_listener_start(&l, &setup, &err);
    if (status != TACIT_OK)
        print_error("%s\n", err.message);
    assert_int_equal(status, TACIT_OK);
    return l;
}

static tacit_link *dial(const char *url, tacit_ca *trusted, uint32_t connect_ms)
{
    tacit_link *link;
    tacit_error err;
    tacit_link_setup setup = {.url = url,
                              .roots_pem = tacit_ca_root_pem(trusted),
                              .connect_ms = connect_ms,
                              .reply_ms = GIVE_UP_MS};
    assert_int_equal(tacit_link_open(&link, &setup, &err), TACIT_OK);
    return link;
}

static tacit_status call(tacit_link *link)
{
    tacit_buffer reply = {0};
    tacit_error err;
    tacit_status status = tacit_link_call(link, "x", 1, &reply, &err);
    tacit_buffer_free(&reply);
    return status;
}

static int connect_plain(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static int bind_plain(char url[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    snprintf(url, 64, "tls+tcp://127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* How a peer goes. */
typedef enum farewell { FINISH, RESET, HALF } farewell;

static void leave(int fd, farewell how)
{
    struct linger now = {1, 0};
    if (how == RESET)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    if (how == HALF)
        shutdown(fd, SHUT_WR);
    close(fd);
}

/* The peer's side of a channel over a plain socket: a client that asks once, a server that answers
 * once. It hangs up when `allowed` bytes were written; false: before it was done. */
static bool write_allowed(int fd, const uint8_t *data, size_t size, size_t *allowed)
{
    size_t n = size < *allowed ? size : *allowed;
    *allowed -= n;
    return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n && n == size;
}

static bool play(int fd, tacit_tls *tls, bool server, size_t allowed)
{
    uint8_t wire[CHANNEL_WIRE_BYTES];
    link_channel ch;
    bool wrote = false, goes = true;
    ssize_t got = 1;
    size_t n;
    assert_int_equal(channel_open(&ch, tls, server, TACIT_MESSAGE_MAX), TACIT_OK);
    while (goes && got > 0) {
        if (ch.ready && !wrote && (!server || ch.state == CHANNEL_MESSAGE)) {
            channel_write(&ch, server ? channel_message_id(&ch) : 0x80000001u, "hello", 5);
            wrote = true;
        }
        while (goes && (n = channel_output(&ch, wire)) > 0)
            goes = write_allowed(fd, wire, n, &allowed);
        if (!goes || (wrote && (server || ch.state == CHANNEL_MESSAGE)))
            break;
        got = recv(fd, wire, sizeof wire, 0);
        if (got > 0)
            channel_input(&ch, wire, (size_t)got);
    }
    channel_close(&ch);
    return goes && wrote;
}

/* --- Tests --- */

/* A peer that sends only the first bytes of a whole conversation, for every number of them. The
 * listener forgets each at once, without waiting for a time-out. */
static void peers_leave_after_every_byte(void **state)
{
    size_t k = 0;
    bool done = false;
    (void)state;
    tacit_listener *l = serve(NULL);
    while (!done) {
        int fd = connect_plain(tacit_listener_port(l));
        done = play(fd, client_tls, false, k);
        leave(fd, (farewell)(k % 3));
        k += k < 300 ? 1 : 7;
    }
    assert_true(k > 300); /* a hello, the end of the handshake, a greeting and a request */
    for (uint64_t start = tacit_clock_monotonic_ms();
         tacit_listener_count(l).connections > 0 &&
         tacit_clock_monotonic_ms() - start < GIVE_UP_MS / 4;)
        tacit_clock_sleep_ms(1);
    assert_int_equal(tacit_listener_count(l).connections, 0);
    assert_int_equal(tacit_listener_count(l).timed_out + tacit_listener_count(l).idled, 0);
    tacit_listener_stop(l);
    expect_nothing_left();
}

/* Whose request is handled while they leave: the reply, several pieces long, meets a connection
 * that ends before, between and after them. */
static void replies_meet_peers_that_left(void **state)
{
    uint8_t scrap[5000];
    unsigned delay_ms = 2;
    (void)state;
    tacit_listener *l = serve(&delay_ms);
    for (int i = 0; i < 150; i++) {
        link_channel ch;
        uint8_t wire[CHANNEL_WIRE_BYTES];
        size_t n;
        int fd = connect_plain(tacit_listener_port(l));
        assert_int_equal(channel_open(&ch, client_tls, false, TACIT_MESSAGE_MAX), TACIT_OK);
        for (bool wrote = false; !wrote;) {
            wrote = ch.ready;
            if (wrote)
                channel_write(&ch, 0x80000001u, "x", 1);
            while ((n = channel_output(&ch, wire)) > 0)
                assert_int_equal(send(fd, wire, n, MSG_NOSIGNAL), (ssize_t)n);
            ssize_t got = wrote ? 0 : recv(fd, wire, sizeof wire, 0);
            channel_input(&ch, wire, (size_t)got);
        }
        if (i % 5 > 1) /* before the reply, while it comes, or with a full window */
            tacit_clock_sleep_ms((uint64_t)i % 5);
        if (i % 2)
            (void)!recv(fd, scrap, sizeof scrap, MSG_DONTWAIT);
        channel_close(&ch);
        leave(fd, (farewell)(i % 3));
    }
    tacit_listener_stop(l);
    expect_nothing_left();
}

/* Connections of every stage when the listener stops, the queued and the handled among them. */
static void stopping_ends_every_stage(void **state)
{
    static const size_t sent[] = {0, 1, 200, 340, 420, 440, 460, 470, SIZE_MAX};
    enum { STAGES = sizeof sent / sizeof *sent };
    unsigned delay_ms = 30;
    (void)state;
    for (int round = 0; round < 10; round++) {
        int fds[STAGES];
        tacit_listener *l = serve(&delay_ms);
        for (int i = 0; i < STAGES; i++) {
            fds[i] = connect_plain(tacit_listener_port(l));
            if (sent[i] != SIZE_MAX)
                play(fds[i], client_tls, false, sent[i]);
        }
        tacit_clock_sleep_ms((uint64_t)round * 3);
        uint64_t start = tacit_clock_monotonic_ms();
        tacit_listener_stop(l);
        assert_true(tacit_clock_monotonic_ms() - start < GIVE_UP_MS / 4);
        for (int i = 0; i < STAGES; i++)
            close(fds[i]);
        expect_nothing_left();
    }
}

typedef struct cutter {
    int fd;
    size_t allowed;
    farewell how;
    atomic_bool stop; /* the link has given up */
    bool served, done;
} cutter;

/* Serves connections up to their number of bytes. */
static void *serve_part(void *arg)
{
    cutter *c = arg;
    struct pollfd coming = {.fd = c->fd, .events = POLLIN};
    while (!atomic_load(&c->stop)) {
        if (poll(&coming, 1, 5) <= 0)
            continue;
        int fd = accept(c->fd, NULL, NULL);
        assert_true(fd >= 0);
        c->done = play(fd, server_tls, true, c->allowed);
        c->served = true;
        leave(fd, c->how);
    }
    return NULL;
}

static void links_survive_servers_that_leave(void **state)
{
    char url[64];
    bool done = false;
    (void)state;
    int fd = bind_plain(url);
    assert_int_equal(listen(fd, 1), 0);
    for (size_t k = 0; !done;) {
        pthread_t thread;
        cutter c = {.fd = fd, .allowed = k, .how = (farewell)(k % 3)};
        tacit_link *link = dial(url, ca, 50); /* less than the pause before it dials again */
        assert_int_equal(pthread_create(&thread, NULL, serve_part, &c), 0);
        tacit_status status = call(link);
        tacit_link_close(link);
        atomic_store(&c.stop, true);
        pthread_join(thread, NULL);
        done = c.done;
        assert_int_equal(status, done ? TACIT_OK : TACIT_UNREACHABLE);
        k += c.served ? 13 : 0; /* a busy machine: it gave up before it dialled */
    }
    close(fd);
    expect_nothing_left();
}

static void *interrupt_soon(void *arg)
{
    tacit_link_interrupt(arg);
    return NULL;
}

static void interrupted_links_leave_nothing(void **state)
{
    unsigned delay_ms = 5;
    (void)state;
    tacit_listener *l = serve(&delay_ms);
    for (int i = 0; i < 60; i++) {
        pthread_t thread;
        tacit_link *link = dial(tacit_listener_url(l), ca, GIVE_UP_MS);
        if (i % 2)
            assert_int_equal(call(link), TACIT_OK);
        assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, link), 0);
        tacit_status status = call(link);
        assert_true(status == TACIT_AGAIN || status == TACIT_OK);
        pthread_join(thread, NULL);
        assert_int_equal(call(link), TACIT_AGAIN); /* and every later one */
        tacit_link_close(link);
    }
    tacit_listener_stop(l);
    expect_nothing_left();
}

/* Accepts and hangs up, until the socket is shut down. */
static void *hang_up_on_all(void *arg)
{
    int fd;
    while ((fd = accept(*(int *)arg, NULL, NULL)) >= 0)
        close(fd);
    return NULL;
}

static void fail_to_call(const char *url, tacit_ca *trusted, int times)
{
    tacit_link *link = dial(url, trusted, 50);
    for (int i = 0; i < times; i++)
        assert_int_equal(call(link), TACIT_UNREACHABLE);
    tacit_link_close(link);
}

static void failed_calls_leave_nothing(void **state)
{
    char url[64];
    pthread_t thread;
    (void)state;
    tacit_listener *l = serve(NULL);
    fail_to_call(tacit_listener_url(l), other_ca, 3);
    tacit_listener_stop(l);
    int fd = bind_plain(url); /* refuses: it does not listen */
    fail_to_call(url, ca, 3);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(pthread_create(&thread, NULL, hang_up_on_all, &fd), 0);
    fail_to_call(url, ca, 3);
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(fd);
    expect_nothing_left();
}

/* A server that closed an idle connection is asked again on a new one, within the same call. */
static void closed_idle_connections_are_made_anew(void **state)
{
    char url[64];
    (void)state;
    tacit_listener *l = serve(NULL);
    snprintf(url, sizeof url, "%s", tacit_listener_url(l));
    tacit_link *link = dial(url, ca, GIVE_UP_MS);
    for (int i = 0; i < 20; i++) {
        tacit_error err;
        tacit_listener_setup setup = {.url = url,
                                      .certificate_pem = server_chain,
                                      .key_pem = (const char *)server_key.data,
                                      .handler = answer_large};
        assert_int_equal(call(link), TACIT_OK);
        tacit_listener_stop(l);
        assert_int_equal(tacit_listener_start(&l, &setup, &err), TACIT_OK);
    }
    assert_int_equal(call(link), TACIT_OK);
    assert_int_equal(tacit_listener_count(l).requests, 1);
    tacit_link_close(link);
    tacit_listener_stop(l);
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_leave_after_every_byte),
        cmocka_unit_test(replies_meet_peers_that_left),
        cmocka_unit_test(stopping_ends_every_stage),
        cmocka_unit_test(links_survive_servers_that_leave),
        cmocka_unit_test(interrupted_links_leave_nothing),
        cmocka_unit_test(failed_calls_leave_nothing),
        cmocka_unit_test(closed_idle_connections_are_made_anew),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
