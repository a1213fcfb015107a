/* Links and listeners over real loopback sockets: who gets in, what a hostile peer can do, retries.
 * Hostile peers are plain sockets and OpenSSL's own client, not the code under test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/certificate.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/link.h"
#include "common/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nng/nng.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define START_MS 1800000000000ull
#define DAY_MS 86400000ull

typedef struct party {
    char *chain;
    tacit_secret key;
} party;

static char folder[64];
static tacit_ca *ca, *other_ca;
static party server, device, stranger;
static _Atomic uint64_t now_ms;
static const uint8_t device_id[16] = {1, 2, 3};

static uint64_t test_clock(void *ctx)
{
    (void)ctx;
    return atomic_load(&now_ms);
}

static void make_party(party *p, tacit_ca *issuer, bool is_server)
{
    static const char *const names[] = {"127.0.0.1", "localhost"};
    static int serial;
    char path[128];
    uint8_t *csr;
    size_t size;
    tacit_error err;
    snprintf(path, sizeof path, "%s/key-%d", folder, serial++);
    assert_int_equal(tacit_tls_key_create(path, &err), TACIT_OK);
    assert_int_equal(tacit_tls_key_load(&p->key, path, &err), TACIT_OK);
    const char *key = (const char *)p->key.data;
    if (is_server) {
        assert_int_equal(tacit_ca_issue_server(issuer, key, names, 2, &p->chain, &err), TACIT_OK);
        return;
    }
    assert_int_equal(tacit_csr_create(key, &csr, &size, &err), TACIT_OK);
    assert_int_equal(tacit_ca_issue_device(issuer, csr, size, device_id, &p->chain, &err),
                     TACIT_OK);
    free(csr);
}

static void drop_party(party *p)
{
    free(p->chain);
    tacit_secret_free(&p->key);
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

static int setup(void **state)
{
    (void)state;
    atomic_store(&now_ms, START_MS);
    tacit_clock_inject(test_clock, NULL);
    snprintf(folder, sizeof folder, "/tmp/tacit-link-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    ca = make_ca("fleet");
    other_ca = make_ca("others");
    make_party(&server, ca, true);
    make_party(&device, ca, false);
    make_party(&stranger, other_ca, false);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    drop_party(&server);
    drop_party(&device);
    drop_party(&stranger);
    tacit_ca_free(ca);
    tacit_ca_free(other_ca);
    nng_fini();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static int reset_clock(void **state)
{
    (void)state;
    atomic_store(&now_ms, START_MS);
    return 0;
}

static bool echo(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    if (ctx)
        atomic_fetch_add((atomic_int *)ctx, 1);
    return tacit_buffer_append(reply, request, size) == TACIT_OK;
}

static tacit_listener_setup serve(const char *url, const char *roots)
{
    return (tacit_listener_setup){.url = url,
                                  .certificate_pem = server.chain,
                                  .key_pem = (const char *)server.key.data,
                                  .roots_pem = roots,
                                  .handler = echo};
}

static tacit_listener *start(const tacit_listener_setup *setup)
{
    tacit_listener *l;
    tacit_error err = {0};
    tacit_status status = tacit_listener_start(&l, setup, &err);
    if (status != TACIT_OK)
        print_error("%s\n", err.message);
    assert_int_equal(status, TACIT_OK);
    return l;
}

static tacit_listener *start_mutual(void)
{
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    return start(&setup);
}

static tacit_link *dial_as(const char *url, const party *who, const char *roots)
{
    tacit_link *link;
    tacit_error err = {0};
    tacit_link_setup setup = {.url = url,
                              .certificate_pem = who ? who->chain : NULL,
                              .key_pem = who ? (const char *)who->key.data : NULL,
                              .roots_pem = roots,
                              .connect_ms = 20000,
                              .reply_ms = 20000};
    assert_int_equal(tacit_link_open(&link, &setup, &err), TACIT_OK);
    return link;
}

static tacit_link *dial(tacit_listener *l)
{
    return dial_as(tacit_listener_url(l), &device, tacit_ca_root_pem(ca));
}

static void call_ok(tacit_link *link, const char *text)
{
    tacit_buffer reply = {0};
    tacit_error err = {0};
    tacit_status status = tacit_link_call(link, text, strlen(text), &reply, &err);
    if (status != TACIT_OK)
        print_error("%s\n", err.message);
    assert_int_equal(status, TACIT_OK);
    assert_int_equal(reply.size, strlen(text));
    assert_memory_equal(reply.data, text, reply.size);
    tacit_buffer_free(&reply);
}

/* The call fails because a certificate is refused, and the message says `why`. */
static void call_refused(tacit_link *link, const char *why)
{
    tacit_buffer reply = {0};
    tacit_error err = {0};
    assert_int_equal(tacit_link_call(link, "x", 1, &reply, &err), TACIT_UNREACHABLE);
    if (!strstr(err.message, why))
        print_error("expected '%s' in: %s\n", why, err.message);
    assert_non_null(strstr(err.message, why));
    assert_true(tacit_link_was_refused(link));
    tacit_buffer_free(&reply);
    tacit_link_close(link);
}

/* --- Who gets in --- */

static void mutual_works_up_to_the_cap(void **state)
{
    static const size_t sizes[] = {1, 1000, 16384, 16385, 65537, TACIT_MESSAGE_MAX};
    (void)state;
    tacit_listener *l = start_mutual();
    tacit_link *link = dial(l);
    uint8_t *data = malloc(TACIT_MESSAGE_MAX + 1);
    tacit_buffer reply = {0};
    tacit_error err;
    for (size_t i = 0; i < TACIT_MESSAGE_MAX + 1; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(tacit_link_call(link, data, sizes[i], &reply, &err), TACIT_OK);
        assert_int_equal(reply.size, sizes[i]);
        assert_memory_equal(reply.data, data, sizes[i]);
    }
    assert_int_equal(tacit_link_call(link, data, TACIT_MESSAGE_MAX + 1, &reply, &err), TACIT_USAGE);
    call_ok(link, "still there");
    assert_int_equal(tacit_listener_count(l).connections, 1);
    tacit_buffer_free(&reply);
    free(data);
    tacit_link_close(link);
    tacit_listener_stop(l);
}

static void names_are_checked(void **state)
{
    char url[64];
    (void)state;
    party misnamed;
    static const char *const names[] = {"elsewhere.example"};
    char path[128];
    tacit_error err;
    snprintf(path, sizeof path, "%s/misnamed", folder);
    assert_int_equal(tacit_tls_key_create(path, &err), TACIT_OK);
    assert_int_equal(tacit_tls_key_load(&misnamed.key, path, &err), TACIT_OK);
    assert_int_equal(
        tacit_ca_issue_server(ca, (const char *)misnamed.key.data, names, 1, &misnamed.chain, &err),
        TACIT_OK);
    tacit_listener *good = start_mutual();
    snprintf(url, sizeof url, "tls+tcp://localhost:%u", tacit_listener_port(good));
    tacit_link *link = dial_as(url, &device, tacit_ca_root_pem(ca));
    call_ok(link, "by name");
    tacit_link_close(link);
    tacit_listener_stop(good);
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.certificate_pem = misnamed.chain;
    setup.key_pem = (const char *)misnamed.key.data;
    tacit_listener *bad = start(&setup);
    call_refused(dial(bad), "IP address mismatch");
    snprintf(url, sizeof url, "tls+tcp://localhost:%u", tacit_listener_port(bad));
    call_refused(dial_as(url, &device, tacit_ca_root_pem(ca)), "ostname mismatch");
    assert_int_equal(tacit_listener_count(bad).requests, 0);
    tacit_listener_stop(bad);
    drop_party(&misnamed);
}

static void strangers_stay_out(void **state)
{
    (void)state;
    tacit_listener *l = start_mutual();
    const char *url = tacit_listener_url(l), *root = tacit_ca_root_pem(ca);
    call_refused(dial_as(url, NULL, root), "demands a certificate");
    call_refused(dial_as(url, &stranger, root), "does not know the root");
    call_refused(dial_as(url, &server, root), "refuses our certificate");
    call_refused(dial_as(url, &device, tacit_ca_root_pem(other_ca)),
                 "the server's certificate is refused");
    assert_int_equal(tacit_listener_count(l).requests, 0);
    tacit_link *link = dial(l);
    call_ok(link, "a friend");
    tacit_link_close(link);
    tacit_listener_stop(l);
}

static void expired_certificates_are_refused(void **state)
{
    party late_server;
    (void)state;
    tacit_listener *l = start_mutual();
    tacit_link *link = dial(l);
    call_ok(link, "in time");
    tacit_link_close(link);
    atomic_store(&now_ms, START_MS + 31 * DAY_MS);
    call_refused(dial(l), "certificate has expired by this clock, which says 2027-02-15");
    tacit_listener_stop(l);
    make_party(&late_server, ca, true);
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.certificate_pem = late_server.chain;
    setup.key_pem = (const char *)late_server.key.data;
    l = start(&setup);
    call_refused(dial(l), "our certificate has expired");
    assert_int_equal(tacit_listener_count(l).requests, 0);
    /* A clock set back does not help: the checkpoint's time counts. */
    atomic_store(&now_ms, START_MS + 32 * DAY_MS);
    tacit_tls_raise_time_floor(START_MS + 32 * DAY_MS);
    atomic_store(&now_ms, START_MS);
    call_refused(dial(l), "our certificate has expired");
    tacit_tls_reset_time_floor();
    tacit_listener_stop(l);
    drop_party(&late_server);
}

static void enrolment_pins_the_root(void **state)
{
    uint8_t pin[32];
    tacit_error err;
    tacit_link *link;
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", NULL);
    tacit_listener *l = start(&setup);
    tacit_ca_fingerprint(ca, pin);
    tacit_link_setup ask = {.url = tacit_listener_url(l), .root_pin = pin};
    assert_int_equal(tacit_link_open(&link, &ask, &err), TACIT_OK);
    call_ok(link, "token");
    tacit_link_close(link);
    pin[31] ^= 1;
    assert_int_equal(tacit_link_open(&link, &ask, &err), TACIT_OK);
    call_refused(link, "not the one that the token names");
    tacit_ca_fingerprint(other_ca, pin);
    assert_int_equal(tacit_link_open(&link, &ask, &err), TACIT_OK);
    call_refused(link, "not the one that the token names");
    /* Neither root nor pin: nothing to check against. */
    ask.root_pin = NULL;
    assert_int_equal(tacit_link_open(&link, &ask, &err), TACIT_USAGE);
    tacit_listener_stop(l);
}

static void addresses_are_checked(void **state)
{
    static const char *const bad[] = {"",
                                      "tcp://127.0.0.1:1",
                                      "tls+tcp://127.0.0.1",
                                      "tls+tcp://:5",
                                      "tls+tcp://h:0",
                                      "tls+tcp://h:65536",
                                      "tls+tcp://h:5/x",
                                      "tls+tcp://[::1:5",
                                      "ipc://here",
                                      "tls+tcp://h:1:2",
                                      "http://h:5"};
    tacit_link *link;
    tacit_error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tacit_link_setup setup = {.url = bad[i], .roots_pem = tacit_ca_root_pem(ca)};
        assert_int_equal(tacit_link_open(&link, &setup, &err), TACIT_BAD_INPUT);
        assert_null(link);
    }
}

/* --- Hostile peers --- */

static int connect_plain(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Waits until the peer hangs up; what it sends is thrown away. */
static void wait_closed(int fd)
{
    char scrap[4096];
    while (read(fd, scrap, sizeof scrap) > 0)
        continue;
    close(fd);
}

static void close_hard(int fd)
{
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* A ClientHello of TLS 1.3 as OpenSSL writes it. */
static size_t client_hello(uint8_t *out, size_t size)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *to = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, to);
    SSL_set_connect_state(ssl);
    SSL_do_handshake(ssl);
    int n = BIO_read(to, out, (int)size);
    assert_true(n > 50);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    ERR_clear_error();
    return (size_t)n;
}

static void old_tls_is_refused(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", NULL);
    tacit_listener *l = start(&setup);
    for (int i = 0; i < 2; i++) {
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_max_proto_version(ctx, versions[i]);
        SSL *ssl = SSL_new(ctx);
        int fd = connect_plain(tacit_listener_port(l));
        SSL_set_fd(ssl, fd);
        assert_int_equal(SSL_connect(ssl) == 1, versions[i] == TLS1_3_VERSION);
        if (versions[i] == TLS1_3_VERSION)
            assert_int_equal(SSL_version(ssl), TLS1_3_VERSION);
        SSL_free(ssl);
        SSL_CTX_free(ctx);
        close(fd);
        ERR_clear_error();
    }
    tacit_listener_stop(l);
}

/* An SP peer over OpenSSL that announces a message of `announced` bytes. */
static void announce(uint16_t port, uint64_t announced)
{
    uint8_t hello[16] = {0, 'S', 'P', 0, 0, 0x30, 0, 0}, scrap[64];
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    int fd = connect_plain(port);
    SSL_set_fd(ssl, fd);
    assert_int_equal(SSL_connect(ssl), 1);
    for (int i = 0; i < 8; i++)
        hello[8 + i] = (uint8_t)(announced >> (56 - 8 * i));
    assert_int_equal(SSL_write(ssl, hello, 16), 16);
    assert_int_equal(SSL_read(ssl, scrap, 8), 8); /* the server's greeting */
    assert_memory_equal(scrap, "\0SP\0\0\x31\0\0", 8);
    assert_true(SSL_read(ssl, scrap, sizeof scrap) <= 0); /* it hangs up */
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    ERR_clear_error();
}

static void huge_messages_are_never_allocated(void **state)
{
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", NULL);
    tacit_listener *l = start(&setup);
    announce(tacit_listener_port(l), TACIT_MESSAGE_MAX + 5);
    announce(tacit_listener_port(l), 1ull << 40);
    announce(tacit_listener_port(l), UINT64_MAX);
    assert_int_equal(tacit_listener_count(l).requests, 0);
    tacit_listener_stop(l);
}

static void wrong_greeting_is_refused(void **state)
{
    uint8_t hello[8] = {0, 'S', 'P', 0, 0, 0x10, 0, 0}, scrap[64];
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", NULL);
    tacit_listener *l = start(&setup);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    int fd = connect_plain(tacit_listener_port(l));
    SSL_set_fd(ssl, fd);
    assert_int_equal(SSL_connect(ssl), 1);
    assert_int_equal(SSL_write(ssl, hello, 8), 8);
    while (SSL_read(ssl, scrap, sizeof scrap) > 0)
        continue;
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    ERR_clear_error();
    tacit_listener_stop(l);
}

static void silent_connections_are_closed(void **state)
{
    int fds[12];
    uint8_t hello[2048];
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.handshake_ms = 300;
    tacit_listener *l = start(&setup);
    size_t size = client_hello(hello, sizeof hello);
    for (int i = 0; i < 12; i++) {
        fds[i] = connect_plain(tacit_listener_port(l));
        if (i % 3 == 1) /* half a hello */
            assert_int_equal(write(fds[i], hello, size / 2), (ssize_t)(size / 2));
        if (i % 3 == 2) /* a hello, then nothing */
            assert_int_equal(write(fds[i], hello, size), (ssize_t)size);
    }
    tacit_link *link = dial(l);
    call_ok(link, "beside them");
    for (int i = 0; i < 12; i++)
        wait_closed(fds[i]);
    call_ok(link, "after them"); /* a finished handshake is never timed out */
    assert_true(tacit_listener_count(l).timed_out >= 12);
    tacit_link_close(link);
    tacit_listener_stop(l);
}

/* A peer over OpenSSL that finishes the handshake and sends `size` bytes. */
typedef struct sitter {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
} sitter;

static sitter sit(uint16_t port, const void *data, int size)
{
    sitter s = {.ctx = SSL_CTX_new(TLS_client_method()), .fd = connect_plain(port)};
    s.ssl = SSL_new(s.ctx);
    SSL_set_fd(s.ssl, s.fd);
    assert_int_equal(SSL_connect(s.ssl), 1);
    if (size)
        assert_int_equal(SSL_write(s.ssl, data, size), size);
    return s;
}

static void expect_hung_up(sitter *s)
{
    uint8_t scrap[64];
    while (SSL_read(s->ssl, scrap, sizeof scrap) > 0)
        continue;
    SSL_free(s->ssl);
    SSL_CTX_free(s->ctx);
    close(s->fd);
    ERR_clear_error();
}

static bool echo_late(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    (void)ctx;
    usleep(1200000);
    return tacit_buffer_append(reply, request, size) == TACIT_OK;
}

/* Whoever takes every place and says nothing more gives the places back: after the handshake, after
 * the greeting, in the middle of a message. Who asks now and then stays. */
static bool sit_until_idle(void)
{
    enum { PLACES = 9 };
    uint8_t part[8 + 8 + 100] = {0, 'S', 'P', 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0};
    static const int sent[3] = {0, 8, sizeof part};
    sitter sitters[PLACES];
    tacit_link *link;
    tacit_buffer reply = {0};
    tacit_error err;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", NULL);
    setup.max_connections = PLACES;
    setup.handshake_ms = 2000;
    setup.idle_ms = 2000;
    tacit_listener *l = start(&setup);
    for (int i = 0; i < PLACES; i++)
        sitters[i] = sit(tacit_listener_port(l), part, sent[i % 3]);
    wait_closed(connect_plain(tacit_listener_port(l))); /* no place is left */
    tacit_link_setup asks = {.url = tacit_listener_url(l),
                             .roots_pem = tacit_ca_root_pem(ca),
                             .connect_ms = 1000,
                             .reply_ms = 20000};
    assert_int_equal(tacit_link_open(&link, &asks, &err), TACIT_OK);
    assert_int_equal(tacit_link_call_patiently(link, "a place", 7, 20000, &reply, &err), TACIT_OK);
    uint64_t accepted = tacit_listener_count(l).accepted, longest = 0;
    for (int i = 0; i < 30; i++) { /* longer than any limit */
        uint64_t before = tacit_clock_monotonic_ms();
        call_ok(link, "now and then");
        usleep(100000);
        uint64_t gap = tacit_clock_monotonic_ms() - before;
        longest = gap > longest ? gap : longest;
    }
    for (int i = 0; i < PLACES; i++)
        expect_hung_up(&sitters[i]);
    bool in_time = longest < 250; /* half of the least limit */
    if (in_time) {
        assert_int_equal(tacit_listener_count(l).accepted, accepted);
        assert_int_equal(tacit_listener_count(l).timed_out, PLACES / 3); /* who did not greet */
        assert_int_equal(tacit_listener_count(l).idled, PLACES - PLACES / 3);
    }
    tacit_buffer_free(&reply);
    tacit_link_close(link);
    tacit_listener_stop(l);
    return in_time;
}

/* A machine that is too busy to ask now and then is given other chances. */
static void idle_connections_make_room(void **state)
{
    bool in_time = false;
    (void)state;
    for (int i = 0; i < 10 && !in_time; i++)
        in_time = sit_until_idle();
    assert_true(in_time);
}

static void a_slow_handler_is_not_idle(void **state)
{
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.handler = echo_late;
    setup.idle_ms = 300;
    tacit_listener *l = start(&setup);
    tacit_link *link = dial(l);
    call_ok(link, "slowly");
    assert_int_equal(tacit_listener_count(l).idled, 0);
    tacit_link_close(link);
    tacit_listener_stop(l);
}

static void spin(int rounds)
{
    for (volatile int i = 0; i < rounds; i++)
        continue;
}

/* Every way of hanging up, with every delay between a finished sending side and a reset, and a
 * friend gets in. */
static void hanging_up_never_stops_the_listener(void **state)
{
    uint8_t hello[2048];
    (void)state;
    tacit_listener *l = start_mutual();
    size_t size = client_hello(hello, sizeof hello);
    for (int i = 0; i < 400; i++) {
        int fd = connect_plain(tacit_listener_port(l));
        size_t sent = i % 4 == 0 ? 0 : i % 4 == 1 ? 20 : size;
        assert_int_equal(write(fd, hello, sent), (ssize_t)sent);
        if (i % 4 == 3)
            shutdown(fd, SHUT_WR);
        spin(i * 2000);
        if (i % 2)
            close_hard(fd);
        else
            close(fd);
        if (i % 40 == 39) {
            tacit_link *link = dial(l);
            call_ok(link, "friend");
            tacit_link_close(link);
        }
    }
    tacit_listener_stop(l);
}

static void failing_dialers_do_not_stop_good_ones(void **state)
{
    tacit_link *bad[16];
    (void)state;
    tacit_listener *l = start_mutual();
    for (int i = 0; i < 16; i++) {
        tacit_buffer reply = {0};
        tacit_error err;
        bad[i] = dial_as(tacit_listener_url(l), i % 2 ? &stranger : NULL, tacit_ca_root_pem(ca));
        assert_int_equal(tacit_link_call(bad[i], "x", 1, &reply, &err), TACIT_UNREACHABLE);
        tacit_link *link = dial(l);
        call_ok(link, "good");
        tacit_link_close(link);
        tacit_buffer_free(&reply);
    }
    assert_int_equal(tacit_listener_count(l).requests, 16);
    for (int i = 0; i < 16; i++)
        tacit_link_close(bad[i]);
    tacit_listener_stop(l);
}

static void connections_are_capped(void **state)
{
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.max_connections = 4;
    tacit_listener *l = start(&setup);
    tacit_link *links[4];
    for (int i = 0; i < 4; i++) {
        links[i] = dial(l);
        call_ok(links[i], "in");
    }
    for (int i = 0; i < 8; i++)
        wait_closed(connect_plain(tacit_listener_port(l)));
    assert_int_equal(tacit_listener_count(l).turned_away, 8);
    assert_int_equal(tacit_listener_count(l).connections, 4);
    for (int i = 0; i < 4; i++) {
        call_ok(links[i], "still in");
        tacit_link_close(links[i]);
    }
    tacit_link *late = dial(l); /* it dials again until a place is free */
    call_ok(late, "late");
    tacit_link_close(late);
    tacit_listener_stop(l);
}

/* One address cannot take the places of the others. */
static void addresses_are_capped(void **state)
{
    enum { MINE = 3 };
    int fds[MINE], other;
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", NULL);
    setup.max_connections = 100;
    setup.max_per_address = MINE;
    tacit_listener *l = start(&setup);
    for (int i = 0; i < MINE; i++)
        fds[i] = connect_plain(tacit_listener_port(l));
    for (int i = 0; i < 5; i++)
        wait_closed(connect_plain(tacit_listener_port(l)));
    assert_int_equal(tacit_listener_count(l).turned_away, 5);
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(tacit_listener_port(l)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(other, (struct sockaddr *)&to, sizeof to), 0);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, other);
    assert_int_equal(SSL_connect(ssl), 1);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(other);
    for (int i = 0; i < MINE; i++)
        close(fds[i]);
    tacit_link *link; /* their places are free again */
    tacit_error err;
    tacit_link_setup asks = {.url = tacit_listener_url(l), .roots_pem = tacit_ca_root_pem(ca)};
    assert_int_equal(tacit_link_open(&link, &asks, &err), TACIT_OK);
    call_ok(link, "mine");
    tacit_link_close(link);
    tacit_listener_stop(l);
}

/* --- Requests and failures --- */

static bool refuse_all(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    (void)ctx, (void)request, (void)size, (void)reply;
    return false;
}

static void garbage_ends_the_connection(void **state)
{
    tacit_buffer reply = {0};
    tacit_error err;
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.handler = refuse_all;
    tacit_listener *l = start(&setup);
    tacit_link *link = dial(l);
    assert_int_equal(tacit_link_call(link, "?", 1, &reply, &err), TACIT_UNREACHABLE);
    assert_non_null(strstr(err.message, "connection was lost"));
    assert_false(tacit_link_was_refused(link));
    assert_int_equal(tacit_listener_count(l).dropped, 1);
    tacit_buffer_free(&reply);
    tacit_link_close(link);
    tacit_listener_stop(l);
}

static void nobody_there_is_said(void **state)
{
    tacit_buffer reply = {0};
    tacit_error err;
    tacit_link *link;
    (void)state;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* a port that refuses */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    char url[64];
    snprintf(url, sizeof url, "tls+tcp://127.0.0.1:%u", ntohs(at.sin_port));
    tacit_link_setup setup = {
        .url = url, .roots_pem = tacit_ca_root_pem(ca), .connect_ms = 300, .reply_ms = 300};
    assert_int_equal(tacit_link_open(&link, &setup, &err), TACIT_OK);
    assert_int_equal(tacit_link_call_patiently(link, "x", 1, 500, &reply, &err), TACIT_UNREACHABLE);
    assert_non_null(strstr(err.message, "refused: is the server running"));
    assert_false(tacit_link_was_refused(link));
    tacit_link_close(link);
    close(fd);
    tacit_buffer_free(&reply);
}

/* The transport counts milliseconds in 31 bits; one more would be no wait at all, or one for ever.
 */
static void waits_that_do_not_fit_are_refused(void **state)
{
    tacit_error err;
    tacit_link *link;
    (void)state;
    tacit_link_setup setup = {.url = "tls+tcp://127.0.0.1:1",
                              .roots_pem = tacit_ca_root_pem(ca),
                              .connect_ms = TACIT_LINK_WAIT_MAX_MS,
                              .reply_ms = TACIT_LINK_WAIT_MAX_MS};
    assert_int_equal(tacit_link_open(&link, &setup, &err), TACIT_OK);
    tacit_link_close(link);
    setup.connect_ms = TACIT_LINK_WAIT_MAX_MS + 1;
    assert_int_equal(tacit_link_open(&link, &setup, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "found 2147483648 and"));
    assert_null(link);
    setup.connect_ms = 0;
    setup.reply_ms = UINT32_MAX;
    assert_int_equal(tacit_link_open(&link, &setup, &err), TACIT_USAGE);
}

/* A server that executes each request once: it keeps the last request and its reply, as the real
 * one does by device and counter. The first execution loses its reply. */
typedef struct once {
    pthread_mutex_t lock;
    pthread_cond_t reached;
    char last[64];
    int executed, seen;
    bool loses_first;
} once;

static bool execute_once(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    once *o = ctx;
    pthread_mutex_lock(&o->lock);
    o->seen++;
    if (strncmp(o->last, (const char *)request, size) != 0) {
        snprintf(o->last, sizeof o->last, "%.*s", (int)size, (const char *)request);
        o->executed++;
    }
    bool answers = !(o->loses_first && o->seen == 1);
    pthread_cond_broadcast(&o->reached);
    pthread_mutex_unlock(&o->lock);
    return tacit_buffer_append(reply, request, size) == TACIT_OK && answers;
}

typedef struct asking {
    tacit_link *link;
    tacit_status status;
    tacit_buffer reply;
    tacit_error err;
} asking;

static void *ask_patiently(void *arg)
{
    asking *a = arg;
    a->status = tacit_link_call_patiently(a->link, "spend 7", 7, 600000, &a->reply, &a->err);
    return NULL;
}

static void restart_is_survived_and_executes_once(void **state)
{
    once o = {.lock = PTHREAD_MUTEX_INITIALIZER,
              .reached = PTHREAD_COND_INITIALIZER,
              .loses_first = true};
    asking a = {0};
    char url[64];
    pthread_t thread;
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.handler = execute_once;
    setup.ctx = &o;
    tacit_listener *l = start(&setup);
    snprintf(url, sizeof url, "%s", tacit_listener_url(l));
    a.link = dial(l);
    assert_int_equal(pthread_create(&thread, NULL, ask_patiently, &a), 0);
    pthread_mutex_lock(&o.lock);
    while (o.seen == 0)
        pthread_cond_wait(&o.reached, &o.lock);
    pthread_mutex_unlock(&o.lock);
    tacit_listener_stop(l); /* executed, the reply is lost, the server goes away */
    setup.url = url;
    l = start(&setup); /* the same port, while the client still waits */
    pthread_join(thread, NULL);
    if (a.status != TACIT_OK)
        print_error("%s\n", a.err.message);
    assert_int_equal(a.status, TACIT_OK);
    assert_memory_equal(a.reply.data, "spend 7", 7);
    assert_true(o.seen >= 2);
    assert_int_equal(o.executed, 1);
    tacit_buffer_free(&a.reply);
    tacit_link_close(a.link);
    tacit_listener_stop(l);
}

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside;
    bool open;
    atomic_int left;
} gate;

static bool wait_at_gate(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    gate *g = ctx;
    pthread_mutex_lock(&g->lock);
    g->inside++;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    atomic_fetch_add(&g->left, 1);
    return tacit_buffer_append(reply, request, size) == TACIT_OK;
}

static void *stop_listener(void *arg)
{
    tacit_listener_stop(arg);
    return NULL;
}

static void wait_inside(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (g->inside == 0)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void open_gate(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void interrupt_and_stop_wait_for_handlers(void **state)
{
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    asking a = {0};
    pthread_t asker, stopper;
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.handler = wait_at_gate;
    setup.ctx = &g;
    tacit_listener *l = start(&setup);
    a.link = dial(l);
    assert_int_equal(pthread_create(&asker, NULL, ask_patiently, &a), 0);
    wait_inside(&g);
    tacit_link_interrupt(a.link); /* the handler never answers, the caller comes back */
    pthread_join(asker, NULL);
    assert_int_equal(a.status, TACIT_AGAIN);
    assert_int_equal(atomic_load(&g.left), 0);
    assert_int_equal(pthread_create(&stopper, NULL, stop_listener, l), 0);
    open_gate(&g);
    pthread_join(stopper, NULL);
    assert_int_equal(atomic_load(&g.left), 1); /* stop returned after the handler */
    tacit_buffer_free(&a.reply);
    tacit_link_close(a.link);
}

typedef struct crowd {
    tacit_listener *listener;
    int number;
    int wrong;
} crowd;

static void *ask_many(void *arg)
{
    crowd *c = arg;
    char text[32];
    tacit_buffer reply = {0};
    tacit_error err;
    tacit_link *link = dial(c->listener);
    for (int i = 0; i < 40; i++) {
        snprintf(text, sizeof text, "%d asks %d", c->number, i);
        if (tacit_link_call(link, text, strlen(text), &reply, &err) != TACIT_OK ||
            reply.size != strlen(text) || memcmp(reply.data, text, reply.size) != 0)
            c->wrong++;
    }
    tacit_buffer_free(&reply);
    tacit_link_close(link);
    return NULL;
}

static void many_clients_get_their_own_replies(void **state)
{
    crowd crowds[6];
    pthread_t threads[6];
    atomic_int handled = 0;
    (void)state;
    tacit_listener_setup setup = serve("tls+tcp://127.0.0.1:0", tacit_ca_root_pem(ca));
    setup.ctx = &handled;
    tacit_listener *l = start(&setup);
    for (int i = 0; i < 6; i++) {
        crowds[i] = (crowd){l, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_many, &crowds[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(crowds[i].wrong, 0);
    }
    assert_int_equal(atomic_load(&handled), 240);
    tacit_listener_stop(l);
}

/* --- The control socket --- */

static void control_socket_is_private(void **state)
{
    char url[128], path[128];
    struct stat st;
    tacit_listener *second;
    tacit_error err;
    (void)state;
    snprintf(path, sizeof path, "%s/control.sock", folder);
    snprintf(url, sizeof url, "ipc://%s", path);
    tacit_listener_setup setup = {.url = url, .handler = echo};
    tacit_listener *l = start(&setup);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    tacit_link *link = dial_as(url, NULL, NULL);
    call_ok(link, "status");
    assert_int_equal(tacit_listener_start(&second, &setup, &err), TACIT_CONFLICT);
    call_ok(link, "still served");
    tacit_link_close(link);
    tacit_listener_stop(l);
    /* A socket file that nobody serves any more. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
    l = start(&setup);
    link = dial_as(url, NULL, NULL);
    call_ok(link, "anew");
    tacit_link_close(link);
    tacit_listener_stop(l);
}

/* An operator's command that is killed while it connects must not be the last one that gets in. */
static void control_socket_outlives_killed_commands(void **state)
{
    char url[128];
    (void)state;
    snprintf(url, sizeof url, "ipc://%s/killed.sock", folder);
    tacit_listener_setup setup = {.url = url, .handler = echo};
    tacit_listener *l = start(&setup);
    for (int i = 0; i < 1000; i++) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        snprintf(at.sun_path, sizeof at.sun_path, "%.100s", url + strlen("ipc://"));
        assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
        spin(i * 20);
        close(fd);
        if (i % 100 == 99) {
            tacit_link *link = dial_as(url, NULL, NULL);
            call_ok(link, "status");
            tacit_link_close(link);
        }
    }
    tacit_listener_stop(l);
}

static void control_socket_caps_what_it_takes(void **state)
{
    char url[128];
    (void)state;
    snprintf(url, sizeof url, "ipc://%s/caps.sock", folder);
    tacit_listener_setup setup = {.url = url, .handler = echo};
    tacit_listener *l = start(&setup);
    static const uint8_t lengths[3][4] = {
        {0xff, 0xff, 0xff, 0xff}, {1, 0, 4, 0}, {0, 0, 0, 0x80}}; /* 256 KiB + 1, 2 GiB */
    for (int i = 0; i < 3; i++) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        snprintf(at.sun_path, sizeof at.sun_path, "%.100s", url + strlen("ipc://"));
        assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(write(fd, lengths[i], 4), 4);
        wait_closed(fd);
    }
    assert_int_equal(tacit_listener_count(l).requests, 0);
    tacit_link *link = dial_as(url, NULL, NULL);
    uint8_t *data = calloc(1, TACIT_MESSAGE_MAX);
    tacit_buffer reply = {0};
    tacit_error err;
    assert_int_equal(tacit_link_call(link, data, TACIT_MESSAGE_MAX, &reply, &err), TACIT_OK);
    assert_int_equal(reply.size, TACIT_MESSAGE_MAX);
    tacit_listener_stop(l);
    assert_int_equal(tacit_link_call(link, data, 1, &reply, &err), TACIT_UNREACHABLE);
    assert_non_null(strstr(err.message, "is the server running?"));
    tacit_buffer_free(&reply);
    free(data);
    tacit_link_close(link);
}

static void ports_in_use_are_named(void **state)
{
    tacit_listener *second;
    tacit_error err;
    (void)state;
    tacit_listener *l = start_mutual();
    tacit_listener_setup setup = serve(tacit_listener_url(l), tacit_ca_root_pem(ca));
    assert_int_equal(tacit_listener_start(&second, &setup, &err), TACIT_CONFLICT);
    assert_non_null(strstr(err.message, tacit_listener_url(l)));
    tacit_listener_stop(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(mutual_works_up_to_the_cap, reset_clock),
        cmocka_unit_test_setup(names_are_checked, reset_clock),
        cmocka_unit_test_setup(strangers_stay_out, reset_clock),
        cmocka_unit_test_setup(expired_certificates_are_refused, reset_clock),
        cmocka_unit_test_setup(enrolment_pins_the_root, reset_clock),
        cmocka_unit_test_setup(addresses_are_checked, reset_clock),
        cmocka_unit_test_setup(old_tls_is_refused, reset_clock),
        cmocka_unit_test_setup(huge_messages_are_never_allocated, reset_clock),
        cmocka_unit_test_setup(wrong_greeting_is_refused, reset_clock),
        cmocka_unit_test_setup(silent_connections_are_closed, reset_clock),
        cmocka_unit_test_setup(idle_connections_make_room, reset_clock),
        cmocka_unit_test_setup(a_slow_handler_is_not_idle, reset_clock),
        cmocka_unit_test_setup(hanging_up_never_stops_the_listener, reset_clock),
        cmocka_unit_test_setup(failing_dialers_do_not_stop_good_ones, reset_clock),
        cmocka_unit_test_setup(connections_are_capped, reset_clock),
        cmocka_unit_test_setup(addresses_are_capped, reset_clock),
        cmocka_unit_test_setup(garbage_ends_the_connection, reset_clock),
        cmocka_unit_test_setup(nobody_there_is_said, reset_clock),
        cmocka_unit_test(waits_that_do_not_fit_are_refused),
        cmocka_unit_test_setup(restart_is_survived_and_executes_once, reset_clock),
        cmocka_unit_test_setup(interrupt_and_stop_wait_for_handlers, reset_clock),
        cmocka_unit_test_setup(many_clients_get_their_own_replies, reset_clock),
        cmocka_unit_test_setup(control_socket_is_private, reset_clock),
        cmocka_unit_test_setup(control_socket_outlives_killed_commands, reset_clock),
        cmocka_unit_test_setup(control_socket_caps_what_it_takes, reset_clock),
        cmocka_unit_test_setup(ports_in_use_are_named, reset_clock),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
