/* One end of a connection against the other, and against hand-made bytes inside TLS, with no socket
 * between: every cut of the stream, what a peer may announce, what is left to send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/certificate.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/link_channel.h"

#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];
static tacit_ca *ca;
static tacit_secret server_key;
static char *server_chain;
static tacit_tls *server_tls, *strict_tls, *client_tls;

static uint64_t test_clock(void *ctx)
{
    (void)ctx;
    return 1800000000000ull;
}

static int setup(void **state)
{
    static const char *const names[] = {"127.0.0.1"};
    char path[128];
    tacit_error err;
    (void)state;
    tacit_clock_inject(test_clock, NULL);
    snprintf(folder, sizeof folder, "/tmp/tacit-channel-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/key", folder);
    assert_int_equal(tacit_tls_key_create(path, &err), TACIT_OK);
    assert_int_equal(tacit_tls_key_load(&server_key, path, &err), TACIT_OK);
    snprintf(path, sizeof path, "%s/ca", folder);
    assert_int_equal(tacit_file_make_dir(path, 0700, &err), TACIT_OK);
    assert_int_equal(tacit_ca_create(path, "fleet", &err), TACIT_OK);
    assert_int_equal(tacit_ca_load(&ca, path, &err), TACIT_OK);
    assert_int_equal(
        tacit_ca_issue_server(ca, (const char *)server_key.data, names, 1, &server_chain, &err),
        TACIT_OK);
    tacit_tls_setup serve = {
        .server = true, .certificate_pem = server_chain, .key_pem = (const char *)server_key.data};
    assert_int_equal(tacit_tls_new(&server_tls, &serve, &err), TACIT_OK);
    serve.roots_pem = tacit_ca_root_pem(ca);
    assert_int_equal(tacit_tls_new(&strict_tls, &serve, &err), TACIT_OK);
    tacit_tls_setup ask = {.roots_pem = tacit_ca_root_pem(ca), .peer_name = "127.0.0.1"};
    assert_int_equal(tacit_tls_new(&client_tls, &ask, &err), TACIT_OK);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    tacit_tls_free(server_tls);
    tacit_tls_free(strict_tls);
    tacit_tls_free(client_tls);
    free(server_chain);
    tacit_secret_free(&server_key);
    tacit_ca_free(ca);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* --- Moving bytes --- */

typedef struct pair {
    link_channel client, server;
} pair;

static void open_pair(pair *p, tacit_tls *server)
{
    assert_int_equal(channel_open(&p->client, client_tls, false, TACIT_MESSAGE_MAX), TACIT_OK);
    assert_int_equal(channel_open(&p->server, server, true, TACIT_MESSAGE_MAX), TACIT_OK);
}

static void close_pair(pair *p)
{
    channel_close(&p->client);
    channel_close(&p->server);
}

/* Moves everything that one side has for the other, `cut` bytes at a time; how much it was. */
static size_t move(link_channel *from, link_channel *to, size_t cut)
{
    uint8_t wire[CHANNEL_WIRE_BYTES];
    size_t all = 0, n;
    while ((n = channel_output(from, wire)) > 0) {
        assert_true(n <= sizeof wire);
        for (size_t at = 0; at < n; at += cut)
            channel_input(to, wire + at, n - at < cut ? n - at : cut);
        all += n;
    }
    return all;
}

/* Until neither has anything to say. */
static void exchange(pair *p, size_t cut)
{
    while (move(&p->client, &p->server, cut) + move(&p->server, &p->client, cut) > 0)
        continue;
}

static void expect_message(link_channel *ch, uint32_t id, const void *body, size_t size)
{
    assert_int_equal(ch->state, CHANNEL_MESSAGE);
    assert_int_equal(channel_message_id(ch), id);
    tacit_span got = channel_message_body(ch);
    assert_int_equal(got.size, size);
    assert_memory_equal(got.data, body, size);
}

/* A peer over OpenSSL alone that has shaken hands with a server. */
typedef struct hostile {
    SSL *ssl;
    link_channel server;
} hostile;

static void move_hostile(hostile *h)
{
    uint8_t wire[CHANNEL_WIRE_BYTES];
    int n;
    size_t back;
    while ((n = BIO_read(SSL_get_wbio(h->ssl), wire, sizeof wire)) > 0)
        channel_input(&h->server, wire, (size_t)n);
    while ((back = channel_output(&h->server, wire)) > 0)
        assert_int_equal(BIO_write(SSL_get_rbio(h->ssl), wire, (int)back), (int)back);
}

static void open_hostile(hostile *h)
{
    assert_int_equal(channel_open(&h->server, server_tls, true, TACIT_MESSAGE_MAX), TACIT_OK);
    h->ssl = tacit_tls_connect(client_tls);
    assert_non_null(h->ssl);
    while (SSL_do_handshake(h->ssl) != 1)
        move_hostile(h);
    move_hostile(h);
    assert_false(h->server.ready);
}

static void close_hostile(hostile *h)
{
    SSL_free(h->ssl);
    channel_close(&h->server);
    ERR_clear_error();
}

static channel_state say(hostile *h, const void *data, int size)
{
    assert_int_equal(SSL_write(h->ssl, data, size), size);
    move_hostile(h);
    return h->server.state;
}

static const uint8_t greeting[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};

/* --- Tests --- */

static void any_cut_of_the_stream_will_do(void **state)
{
    static const size_t cuts[] = {1, 2, 7, 1460, CHANNEL_WIRE_BYTES};
    static const size_t sizes[] = {0, 1, 4095, 15359, 15360, 15361, 65536, TACIT_MESSAGE_MAX};
    uint8_t *data = malloc(TACIT_MESSAGE_MAX);
    (void)state;
    for (size_t i = 0; i < TACIT_MESSAGE_MAX; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        pair p;
        open_pair(&p, server_tls);
        exchange(&p, cuts[c]);
        assert_true(p.client.ready && p.server.ready);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint32_t id = 0x80000000u + (uint32_t)i;
            channel_write(&p.client, id, data, sizes[i]);
            exchange(&p, cuts[c]);
            expect_message(&p.server, id, data, sizes[i]);
            channel_write(&p.server, id, data + sizes[i] / 2, sizes[i] - sizes[i] / 2);
            exchange(&p, cuts[c]);
            expect_message(&p.client, id, data + sizes[i] / 2, sizes[i] - sizes[i] / 2);
            assert_int_equal(channel_next(&p.server), CHANNEL_MORE);
            assert_int_equal(channel_next(&p.client), CHANNEL_MORE);
            assert_null(p.server.message.data); /* who waits holds no memory */
        }
        close_pair(&p);
    }
    free(data);
}

static void greetings_are_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof greeting; i++) {
        hostile h;
        uint8_t wrong[8];
        memcpy(wrong, greeting, sizeof wrong);
        wrong[i] ^= 1;
        open_hostile(&h);
        assert_int_equal(say(&h, wrong, 7), CHANNEL_MORE);
        assert_int_equal(say(&h, wrong + 7, 1), CHANNEL_BROKEN);
        assert_false(h.server.ready);
        close_hostile(&h);
    }
}

static void sizes_are_checked_and_never_believed(void **state)
{
    static const struct {
        uint64_t size;
        channel_state becomes;
    } rows[] = {{0, CHANNEL_BROKEN},
                {3, CHANNEL_BROKEN},
                {4, CHANNEL_MORE},
                {TACIT_MESSAGE_MAX + 4, CHANNEL_MORE},
                {TACIT_MESSAGE_MAX + 5, CHANNEL_BROKEN},
                {1ull << 32, CHANNEL_BROKEN},
                {UINT64_MAX, CHANNEL_BROKEN}};
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        hostile h;
        uint8_t head[8];
        open_hostile(&h);
        assert_int_equal(say(&h, greeting, sizeof greeting), CHANNEL_MORE);
        assert_true(h.server.ready);
        for (int i = 0; i < 8; i++)
            head[i] = (uint8_t)(rows[r].size >> (56 - 8 * i));
        assert_int_equal(say(&h, head, sizeof head), rows[r].becomes);
        assert_null(h.server.message.data); /* nothing is allocated for what did not come */
        if (rows[r].becomes == CHANNEL_MORE && rows[r].size > 4) {
            say(&h, "\x80\0\0\1abc", 7);
            assert_true(h.server.message.capacity <= 4096);
        }
        close_hostile(&h);
    }
}

static void ids_carry_the_request_bit(void **state)
{
    hostile h;
    (void)state;
    open_hostile(&h);
    say(&h, greeting, sizeof greeting);
    assert_int_equal(say(&h, "\0\0\0\0\0\0\0\5\x7f\xff\xff\xffx", 13), CHANNEL_BROKEN);
    close_hostile(&h);
    open_hostile(&h);
    say(&h, greeting, sizeof greeting);
    assert_int_equal(say(&h, "\0\0\0\0\0\0\0\5\x80\0\0\7x", 13), CHANNEL_MESSAGE);
    expect_message(&h.server, 0x80000007u, "x", 1);
    close_hostile(&h);
}

/* Requests that a peer sends without waiting are given one at a time. */
static void requests_wait_behind_one_another(void **state)
{
    hostile h;
    uint8_t reply[64];
    (void)state;
    open_hostile(&h);
    say(&h, greeting, sizeof greeting);
    say(&h,
        "\0\0\0\0\0\0\0\5\x80\0\0\1a"
        "\0\0\0\0\0\0\0\6\x80\0\0\2bc"
        "\0\0\0\0\0\0\0\4\x80\0\0\3",
        13 + 14 + 12);
    expect_message(&h.server, 0x80000001u, "a", 1);
    channel_write(&h.server, 0x80000001u, "A", 1);
    move_hostile(&h);
    assert_int_equal(channel_next(&h.server), CHANNEL_MESSAGE);
    expect_message(&h.server, 0x80000002u, "bc", 2);
    assert_int_equal(channel_next(&h.server), CHANNEL_MESSAGE);
    expect_message(&h.server, 0x80000003u, "", 0);
    assert_int_equal(channel_next(&h.server), CHANNEL_MORE);
    assert_int_equal(SSL_read(h.ssl, reply, 8), 8); /* the server's greeting */
    assert_int_equal(SSL_read(h.ssl, reply, 12), 12);
    assert_memory_equal(reply, "\0\0\0\0\0\0\0\5\x80\0\0\1", 12);
    assert_int_equal(SSL_read(h.ssl, reply, sizeof reply), 1);
    assert_int_equal(reply[0], 'A');
    close_hostile(&h);
}

/* Each update of keys that a peer asks for is answered by one of ours: what one input can cause is
 * bounded by its size. */
static void asked_key_updates_stay_bounded(void **state)
{
    hostile h;
    uint8_t wire[CHANNEL_WIRE_BYTES];
    size_t all = 0, n;
    (void)state;
    open_hostile(&h);
    say(&h, greeting, sizeof greeting);
    while (BIO_ctrl_pending(SSL_get_wbio(h.ssl)) < sizeof wire - 64) {
        assert_int_equal(SSL_key_update(h.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(h.ssl), 1);
    }
    int got = BIO_read(SSL_get_wbio(h.ssl), wire, sizeof wire);
    assert_int_equal(channel_input(&h.server, wire, (size_t)got), CHANNEL_MORE);
    while ((n = channel_output(&h.server, wire)) > 0)
        all += n;
    assert_true(all > 0 && all <= 2 * sizeof wire);
    close_hostile(&h);
}

/* A record's head and a hello's, which say that much more comes: nothing is kept for it. */
static void announced_hellos_are_small(void **state)
{
    link_channel ch;
    (void)state;
    assert_int_equal(channel_open(&ch, server_tls, true, TACIT_MESSAGE_MAX), TACIT_OK);
    assert_int_equal(channel_input(&ch, "\x16\3\1\x3f\xff\1\1\xff", 8), CHANNEL_BROKEN);
    channel_close(&ch);
    assert_int_equal(channel_open(&ch, server_tls, true, TACIT_MESSAGE_MAX), TACIT_OK);
    assert_int_equal(channel_input(&ch, "\x16\3\1\x02\0\1", 6), CHANNEL_MORE);
    assert_int_equal(channel_input(&ch, "\0\x40\0", 3), CHANNEL_BROKEN);
    channel_close(&ch);
    /* Two bytes of the head in a record, the others in the next. */
    assert_int_equal(channel_open(&ch, server_tls, true, TACIT_MESSAGE_MAX), TACIT_OK);
    assert_int_equal(channel_input(&ch, "\x16\3\1\0\2\1\0\x16\3\1\0\2\xff\xff", 14),
                     CHANNEL_BROKEN);
    channel_close(&ch);
}

/* Groups whose arithmetic is costly are not spoken: a peer that offers nothing else is refused. */
static void costly_groups_are_refused(void **state)
{
    hostile h;
    (void)state;
    assert_int_equal(channel_open(&h.server, server_tls, true, TACIT_MESSAGE_MAX), TACIT_OK);
    h.ssl = tacit_tls_connect(client_tls);
    assert_int_equal(SSL_set1_groups_list(h.ssl, "ffdhe2048:ffdhe8192"), 1);
    SSL_do_handshake(h.ssl);
    move_hostile(&h);
    assert_int_equal(h.server.state, CHANNEL_REFUSED);
    close_hostile(&h);
}

static void the_refused_peer_is_told_why(void **state)
{
    pair p;
    char text[256];
    (void)state;
    open_pair(&p, strict_tls);
    exchange(&p, 100);
    assert_int_equal(p.server.state, CHANNEL_REFUSED);
    assert_int_equal(p.client.state, CHANNEL_REFUSED);
    assert_false(p.server.ready);
    tacit_tls_report_text(client_tls, text, sizeof text);
    assert_string_equal(text, "the server demands a certificate and got none");
    assert_true(tacit_tls_report_is_refusal(client_tls));
    assert_int_equal(channel_input(&p.server, "more", 4), CHANNEL_REFUSED); /* final */
    tacit_tls_report_clear(client_tls);
    close_pair(&p);
}

static void the_end_of_the_stream_is_seen(void **state)
{
    hostile h;
    (void)state;
    open_hostile(&h);
    say(&h, greeting, sizeof greeting);
    SSL_shutdown(h.ssl);
    move_hostile(&h);
    assert_int_equal(h.server.state, CHANNEL_BROKEN);
    close_hostile(&h);
    assert_int_equal(channel_open(&h.server, server_tls, true, TACIT_MESSAGE_MAX), TACIT_OK);
    assert_int_equal(channel_input(&h.server, "GET / HTTP/1.1\r\n\r\n", 18), CHANNEL_REFUSED);
    channel_close(&h.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_of_the_stream_will_do),
        cmocka_unit_test(greetings_are_exact),
        cmocka_unit_test(sizes_are_checked_and_never_believed),
        cmocka_unit_test(ids_carry_the_request_bit),
        cmocka_unit_test(requests_wait_behind_one_another),
        cmocka_unit_test(asked_key_updates_stay_bounded),
        cmocka_unit_test(announced_hellos_are_small),
        cmocka_unit_test(costly_groups_are_refused),
        cmocka_unit_test(the_refused_peer_is_told_why),
        cmocka_unit_test(the_end_of_the_stream_is_seen),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
