/* The running server over real sockets and TLS: certificates that expire, its own and a device's,
 * on an injected clock; the folder that one process serves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "common/link.h"

#include <pthread.h>

#define DAY_MS (24 * FLEET_HOUR_MS)
#define TRIES 1200 /* of 50 ms: for broken runs only */

static fleet f;
static atomic_bool stop;
static pthread_t thread;
static tacit_status ended;

static void *run(void *arg)
{
    tacit_error err;
    (void)arg;
    ended = server_run(f.server, &stop, &err);
    if (ended != TACIT_OK)
        print_error("server_run: %s\n", err.message);
    return NULL;
}

/* The ports once the server says them. */
static void await_address(unsigned *port, unsigned *enrol_port)
{
    char path[192];
    snprintf(path, sizeof path, "%s/address", f.dir);
    for (int i = 0; i < TRIES; i++) {
        FILE *file = fopen(path, "r");
        int n = file ? fscanf(file, "%u %u", port, enrol_port) : 0;
        if (file)
            fclose(file);
        if (n == 2)
            return;
        tacit_clock_sleep_ms(50);
    }
    fail_msg("the server does not say its ports");
}

static char *text_of(ProtobufCBinaryData field)
{
    char *text = strndup((char *)field.data, field.len);
    assert_non_null(text);
    return text;
}

typedef struct credentials {
    char *chain, *root, *key;
    char told[8192]; /* roots of the newest renewal */
} credentials;

static void read_key(const fleet_device *d, credentials *c)
{
    char path[224];
    uint8_t *text;
    size_t size;
    tacit_error err;
    snprintf(path, sizeof path, "%s.tls", d->path);
    fleet_must(tacit_file_read(path, 65536, &text, &size, &err), &err, "tls key");
    free(c->key);
    c->key = (char *)text;
}

/* One HELLO by this device over a link of its own. */
static tacit_status hello_over(const credentials *c, unsigned port, bool with_certificate,
                               bool *refused)
{
    char url[64];
    tacit_link *link = NULL;
    tacit_caller *caller = NULL;
    uint8_t nonce[TACIT_NONCE_BYTES];
    tacit_error err;
    snprintf(url, sizeof url, "tls+tcp://127.0.0.1:%u", port);
    tacit_link_setup setup = {.url = url,
                              .roots_pem = c->root,
                              .certificate_pem = with_certificate ? c->chain : NULL,
                              .key_pem = with_certificate ? c->key : NULL,
                              .connect_ms = 2000,
                              .reply_ms = 5000};
    fleet_must(tacit_link_open(&link, &setup, &err), &err, "link");
    tacit_caller_setup asks = {.link = link};
    fleet_must(tacit_caller_new(&caller, &asks, &err), &err, "caller");
    tacit_status status = tacit_caller_nonce(caller, nonce, &err);
    *refused = tacit_link_was_refused(link);
    tacit_caller_free(caller);
    tacit_link_close(link);
    return status;
}

static void await_hello(const credentials *c, unsigned port, bool with_certificate)
{
    bool refused;
    for (int i = 0; i < TRIES; i++) {
        if (hello_over(c, port, with_certificate, &refused) == TACIT_OK)
            return;
        tacit_clock_sleep_ms(50);
    }
    fail_msg("no answer on port %u", port);
}

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, false);
    atomic_store(&stop, false);
    return pthread_create(&thread, NULL, run, NULL);
}

static int teardown(void **state)
{
    (void)state;
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(ended, TACIT_OK);
    fleet_end(&f);
    atomic_store(&fleet_now, FLEET_START_MS);
    return 0;
}

static void renew(fleet_device *d, credentials *c)
{
    Tacit__RenewRequest r = TACIT__RENEW_REQUEST__INIT;
    Tacit__RenewReply *reply = NULL;
    uint8_t *csr;
    size_t size;
    fleet_csr(d, &csr, &size);
    r.csr = tacit_field_of(csr, size);
    fleet_hello(d);
    fleet_must(
        fleet_call(d, TACIT__METHOD__METHOD_RENEW, &r, &tacit__renew_reply__descriptor, &reply),
        &d->err, "renew");
    free(c->chain);
    c->chain = text_of(reply->certificate);
    snprintf(c->told, sizeof c->told, "%.*s", (int)reply->root.len, (char *)reply->root.data);
    read_key(d, c);
    tacit_message_free(reply);
    free(csr);
}

static void test_certificates_expire(void **state)
{
    (void)state;
    fleet_device d;
    Tacit__EnrolReply *reply = NULL;
    uint8_t secret[16];
    unsigned port, enrol_port;
    bool refused;
    await_address(&port, &enrol_port);
    fleet_device_new(&d, &f, "cart");
    fleet_token(&f, secret, NULL);
    fleet_must(fleet_enrol(&d, "cart", secret, &reply), &d.err, "enrol");
    credentials c = {.chain = text_of(reply->certificate), .root = text_of(reply->root)};
    read_key(&d, &c);
    await_hello(&c, port, true);
    await_hello(&c, enrol_port, false);
    assert_int_not_equal(hello_over(&c, port, false, &refused), TACIT_OK);
    assert_true(refused); /* no certificate, no service */

    /* Past half of its life the server serves with a new certificate on the same ports: at the end
     * of the first one's life it still answers. The device's own is refused then. */
    atomic_fetch_add(&fleet_now, 31 * DAY_MS);
    await_hello(&c, enrol_port, false);
    assert_int_not_equal(hello_over(&c, port, true, &refused), TACIT_OK);
    assert_true(refused);

    /* It renews by its identity key and is served again. */
    renew(&d, &c);
    await_hello(&c, port, true);
    tacit_message_free(reply);
    free(c.chain);
    free(c.root);
    free(c.key);
    fleet_device_free(&d);
}

/* --- one root takes the place of another --- */

/* Serves anew with this ca.pem and, unless NULL, this ca.key. */
static void serve_with(const char *roots, const char *key, unsigned *port, unsigned *enrol_port)
{
    char path[192];
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(ended, TACIT_OK);
    fleet_close(&f);
    fleet_write(&f, "s/ca/ca.pem", roots, 0644);
    if (key)
        fleet_write(&f, "s/ca/ca.key", key, 0600);
    snprintf(path, sizeof path, "%s/address", f.dir);
    unlink(path);
    fleet_open(&f);
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    await_address(port, enrol_port);
}

static char *read_text(const char *folder, const char *name)
{
    char path[256];
    uint8_t *text;
    size_t size;
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fleet_must(tacit_file_read(path, 65536, &text, &size, &err), &err, name);
    return (char *)text;
}

static char *join(const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 1;
    char *both = malloc(size);
    assert_non_null(both);
    snprintf(both, size, "%s%s", a, b);
    return both;
}

static void expect_refused(const credentials *c, unsigned port)
{
    bool refused;
    assert_int_not_equal(hello_over(c, port, true, &refused), TACIT_OK);
    assert_true(refused);
}

/* The new root as a fresh server would have it. */
static void make_root(char **pem, char **key)
{
    char folder[128];
    tacit_error err;
    snprintf(folder, sizeof folder, "%s/next", f.folder);
    fleet_must(tacit_file_make_dir(folder, 0700, &err), &err, "folder");
    fleet_must(tacit_ca_create(folder, "tacit/test", &err), &err, "root");
    *pem = read_text(folder, "ca.pem");
    *key = read_text(folder, "ca.key");
}

/* As a device does: the roots of a reply join its own. */
static void trust(credentials *c, const char *roots)
{
    char *all = join(c->root, roots);
    free(c->root);
    c->root = all;
}

static void join_fleet(fleet_device *d, credentials *c, const char *name)
{
    Tacit__EnrolReply *reply = NULL;
    uint8_t secret[16];
    fleet_device_new(d, &f, name);
    fleet_token(&f, secret, NULL);
    fleet_must(fleet_enrol(d, name, secret, &reply), &d->err, "enrol");
    *c = (credentials){.chain = text_of(reply->certificate), .root = text_of(reply->root)};
    read_key(d, c);
    tacit_message_free(reply);
}

static void leave(fleet_device *d, credentials *c)
{
    free(c->chain);
    free(c->root);
    free(c->key);
    fleet_device_free(d);
}

/* First the new root is handed out beside the old one, then it issues and the old one is trusted
 * still, then the old one goes. A device that renews within each stage is served in all of them;
 * one that never hears of the new root does not take the new server for the old one. */
static void test_overlapping_roots(void **state)
{
    (void)state;
    fleet_device d, deaf;
    credentials c, old;
    unsigned port, enrol_port;
    char *new_root, *new_key, *old_root, *first, *second;
    await_address(&port, &enrol_port);
    join_fleet(&d, &c, "cart");
    join_fleet(&deaf, &old, "van");
    await_hello(&c, port, true);
    make_root(&new_root, &new_key);
    old_root = read_text(f.dir, "ca/ca.pem");
    first = join(old_root, new_root);
    second = join(new_root, old_root);

    serve_with(first, NULL, &port, &enrol_port);
    await_hello(&c, port, true);
    renew(&d, &c);
    assert_non_null(strstr(c.told, new_root)); /* so it is told before it has to trust it */
    trust(&c, c.told);

    serve_with(second, new_key, &port, &enrol_port);
    await_hello(&c, port, true); /* new server, certificate of the old root */
    expect_refused(&old, port);
    credentials before = c;
    before.chain = strdup(c.chain);
    before.key = strdup(c.key);
    renew(&d, &c); /* from now on it has one of the new root */
    await_hello(&c, port, true);
    await_hello(&before, port, true);

    serve_with(new_root, NULL, &port, &enrol_port);
    await_hello(&c, port, true);
    expect_refused(&before, port);
    free(before.chain);
    free(before.key);
    free(new_root);
    free(new_key);
    free(old_root);
    free(first);
    free(second);
    leave(&d, &c);
    leave(&deaf, &old);
}

static void test_one_process_a_folder(void **state)
{
    (void)state;
    server *second = NULL;
    tacit_error err;
    unsigned port, enrol_port;
    await_address(&port, &enrol_port);
    assert_int_equal(server_open(&second, f.dir, &err), TACIT_CONFLICT);
    assert_non_null(strstr(err.message, "another tacit-server"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_certificates_expire, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overlapping_roots, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_process_a_folder, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
