/* Closing links and listeners in the middle of nng's negotiation, where nng 1.5.2 forgets the
 * connection (common/tls_engine.h). The linker puts hooks around two functions of OpenSSL that the
 * engine calls; a hook keeps every task thread of nng busy, so that what nng would do next comes
 * after the close. What is left over is counted by OpenSSL itself, as SSL objects alive, and by the
 * kernel, as open files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/certificate.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/link.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <nng/nng.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUSY_MS = 250, TASK_THREADS_MAX = 64, GIVE_UP_MS = 10000 };

static char folder[64];
static tacit_ca *ca, *other_ca;
static char *server_chain;
static tacit_secret server_key;

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

/* nng closes files a moment after the connection that they belong to is freed. */
static void expect_no_more_files(void)
{
    uint64_t start = tacit_clock_monotonic_ms();
    while (open_files() != files_at_start && tacit_clock_monotonic_ms() - start < GIVE_UP_MS)
        tacit_clock_sleep_ms(1);
    assert_int_equal(open_files(), files_at_start);
}

/* --- The hooks --- */

typedef enum moment {
    NOWHERE,
    CLIENT_BEGINS,     /* the dialer's greeting is with the engine, nng's next step is not done */
    CLIENT_IS_GREETED, /* the server's greeting is there, nng has not used the connection yet */
    SERVER_BEGINS      /* a listener's connection, as CLIENT_BEGINS */
} moment;

static _Atomic moment awaited;
static atomic_bool happened;
static _Atomic uint64_t busy_until_ms;
static nng_aio *busy[TASK_THREADS_MAX];

/* On one of nng's task threads. */
static void be_busy(void *arg)
{
    (void)arg;
    while (tacit_clock_monotonic_ms() < atomic_load(&busy_until_ms))
        tacit_clock_sleep_ms(1);
}

static void seize(moment now)
{
    moment expected = now;
    if (!atomic_compare_exchange_strong(&awaited, &expected, NOWHERE))
        return;
    atomic_store(&busy_until_ms, UINT64_MAX);
    for (int i = 0; i < TASK_THREADS_MAX; i++)
        if (nng_aio_begin(busy[i]))
            nng_aio_finish(busy[i], 0);
    atomic_store(&happened, true);
}

int __real_SSL_do_handshake(SSL *ssl);
int __wrap_SSL_do_handshake(SSL *ssl);
int __wrap_SSL_do_handshake(SSL *ssl)
{
    int result = __real_SSL_do_handshake(ssl);
    seize(SSL_is_server(ssl) ? SERVER_BEGINS : CLIENT_BEGINS);
    return result;
}

int __real_SSL_read_ex(SSL *ssl, void *data, size_t size, size_t *got);
int __wrap_SSL_read_ex(SSL *ssl, void *data, size_t size, size_t *got);
int __wrap_SSL_read_ex(SSL *ssl, void *data, size_t size, size_t *got)
{
    int result = __real_SSL_read_ex(ssl, data, size, got);
    if (result == 1 && !SSL_is_server(ssl))
        seize(CLIENT_IS_GREETED);
    return result;
}

/* Returns when it happened; nng's task threads stay busy for BUSY_MS more. */
static void await(moment which)
{
    uint64_t start = tacit_clock_monotonic_ms();
    atomic_store(&happened, false);
    atomic_store(&awaited, which);
    while (!atomic_load(&happened)) {
        if (tacit_clock_monotonic_ms() - start > GIVE_UP_MS)
            fail_msg("nng did not get there in %d ms", GIVE_UP_MS);
        tacit_clock_sleep_ms(1);
    }
    atomic_store(&busy_until_ms, tacit_clock_monotonic_ms() + BUSY_MS);
}

static int connect_plain(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A listener waits for its slots before it closes its socket, and so for the task threads; a peer
 * that comes right after that is let in here. */
static uint16_t late_port;
static int late_peer;

int __real_nng_ctx_close(nng_ctx ctx);
int __wrap_nng_ctx_close(nng_ctx ctx);
int __wrap_nng_ctx_close(nng_ctx ctx)
{
    if (late_port) {
        late_peer = connect_plain(late_port);
        late_port = 0;
        await(SERVER_BEGINS);
    }
    return __real_nng_ctx_close(ctx);
}

/* --- Both sides --- */

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

static int setup(void **state)
{
    static const char *const names[] = {"127.0.0.1"};
    char path[128];
    tacit_error err;
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tacit-close-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    if (SSL_get_ex_new_index(0, NULL, on_ssl_new, NULL, on_ssl_free) < 0)
        return -1;
    for (int i = 0; i < TASK_THREADS_MAX; i++)
        if (nng_aio_alloc(&busy[i], be_busy, NULL) != 0)
            return -1;
    files_at_start = open_files();
    ca = make_ca("fleet");
    other_ca = make_ca("others");
    snprintf(path, sizeof path, "%s/key", folder);
    assert_int_equal(tacit_tls_key_create(path, &err), TACIT_OK);
    assert_int_equal(tacit_tls_key_load(&server_key, path, &err), TACIT_OK);
    assert_int_equal(
        tacit_ca_issue_server(ca, (const char *)server_key.data, names, 1, &server_chain, &err),
        TACIT_OK);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    for (int i = 0; i < TASK_THREADS_MAX; i++)
        nng_aio_free(busy[i]);
    free(server_chain);
    tacit_secret_free(&server_key);
    tacit_ca_free(ca);
    tacit_ca_free(other_ca);
    nng_fini();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static bool echo(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    (void)ctx;
    return tacit_buffer_append(reply, request, size) == TACIT_OK;
}

static tacit_listener *serve(const char *url)
{
    tacit_listener *l;
    tacit_error err = {0};
    tacit_listener_setup setup = {.url = url,
                                  .certificate_pem = server_chain,
                                  .key_pem = (const char *)server_key.data,
                                  .handler = echo,
                                  .contexts = 1};
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
    tacit_link_setup setup = {
        .url = url, .roots_pem = tacit_ca_root_pem(trusted), .connect_ms = connect_ms};
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

/* --- Tests --- */

/* An idle link whose server comes back dials by itself, and is closed at the moment. */
static void close_at(moment which)
{
    char url[64];
    tacit_listener *l = serve("tls+tcp://127.0.0.1:0");
    snprintf(url, sizeof url, "%s", tacit_listener_url(l));
    tacit_link *link = dial(url, ca, GIVE_UP_MS);
    assert_int_equal(call(link), TACIT_OK);
    tacit_listener_stop(l);
    l = serve(url);
    await(which);
    tacit_link_close(link);
    tacit_listener_stop(l);
    assert_int_equal(atomic_load(&ssl_alive), 0);
}

static void closing_a_link_that_begins_leaves_nothing(void **state)
{
    (void)state;
    close_at(CLIENT_BEGINS);
}

static void closing_a_link_that_is_greeted_leaves_nothing(void **state)
{
    (void)state;
    close_at(CLIENT_IS_GREETED);
}

static void stopping_a_listener_that_begins_leaves_nothing(void **state)
{
    (void)state;
    tacit_listener *l = serve("tls+tcp://127.0.0.1:0");
    late_port = tacit_listener_port(l);
    tacit_listener_stop(l);
    assert_int_equal(atomic_load(&ssl_alive), 0);
    close(late_peer);
}

/* Accepts and hangs up, until the socket is shut down. */
static void *hang_up_on_all(void *arg)
{
    int fd;
    while ((fd = accept(*(int *)arg, NULL, NULL)) >= 0)
        close(fd);
    return NULL;
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
    tacit_listener *l = serve("tls+tcp://127.0.0.1:0");
    fail_to_call(tacit_listener_url(l), other_ca, 3);
    tacit_listener_stop(l);
    assert_int_equal(atomic_load(&ssl_alive), 0);
    int fd = bind_plain(url); /* refuses: it does not listen */
    fail_to_call(url, ca, 3);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(pthread_create(&thread, NULL, hang_up_on_all, &fd), 0);
    fail_to_call(url, ca, 3);
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(fd);
    assert_int_equal(atomic_load(&ssl_alive), 0);
    expect_no_more_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_a_link_that_begins_leaves_nothing),
        cmocka_unit_test(closing_a_link_that_is_greeted_leaves_nothing),
        cmocka_unit_test(stopping_a_listener_that_begins_leaves_nothing),
        cmocka_unit_test(failed_calls_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
