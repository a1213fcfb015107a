/* Makes tests/fuzz/corpus/audit and log: the standard log of tests/privacy/world.h as unsigned
 * entries in the form that fuzz_audit.c reads, and signed as fuzz_log.c does, with its faults.
 *
 * usage: make_audit_corpus CORPUS */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../privacy/world.h"

#define MOST_RESERVES 64

static struct {
    uint8_t leaf[MOST_RESERVES][TACIT_HASH_BYTES];
    uint8_t count;
} reserves;

/* A reserve's hash depends on signatures: what stands for it is how many came before. */
static void number(ProtobufCBinaryData hash)
{
    for (uint8_t i = 0; i < reserves.count; i++)
        if (hash.len == TACIT_HASH_BYTES &&
            memcmp(hash.data, reserves.leaf[i], TACIT_HASH_BYTES) == 0) {
            memset(hash.data, 0, hash.len);
            hash.data[0] = i;
            return;
        }
}

static void number_reserves(Tacit__Entry *e)
{
    if (e->body_case == TACIT__ENTRY__BODY_SPEND)
        number(e->spend->reserve_hash);
    if (e->body_case == TACIT__ENTRY__BODY_UPDATE)
        number(e->update->reserve_hash);
    if (e->body_case == TACIT__ENTRY__BODY_AGGREGATE)
        for (size_t i = 0; i < e->aggregate->n_reserve_hashes; i++)
            number(e->aggregate->reserve_hashes[i]);
}

static void put(FILE *file, const void *signed_entry, size_t signed_size)
{
    tacit_error err;
    tacit_entry e;
    uint8_t *bytes;
    size_t size;
    if (tacit_entry_open(&e, signed_entry, signed_size, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    if (e.entry->body_case == TACIT__ENTRY__BODY_RESERVE)
        memcpy(reserves.leaf[reserves.count++], e.leaf, TACIT_HASH_BYTES);
    number_reserves(e.entry);
    if (tacit_message_pack(e.entry, TACIT_MESSAGE_ENTRY_MAX, &bytes, &size, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    const uint8_t length[] = {(uint8_t)size, (uint8_t)(size >> 8)};
    if (fwrite(length, sizeof length, 1, file) != 1 || fwrite(bytes, size, 1, file) != 1)
        fail_msg("cannot write");
    free(bytes);
    tacit_entry_close(&e);
}

static FILE *new_file(const char *corpus, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", corpus, name);
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_msg("cannot write %s", path);
    return file;
}

static void make_world(world *w, int rounds)
{
    world_init(w);
    w->last_round = rounds;
    world_plan_all(w);
    world_log(w);
}

static void write_unsigned(const char *corpus, const char *name, int rounds)
{
    world w;
    make_world(&w, rounds);
    reserves.count = 0;
    FILE *file = new_file(corpus, name);
    for (size_t i = 0; i < w.count; i++)
        put(file, w.entry[i].bytes, w.entry[i].size);
    fclose(file);
    world_free(&w);
}

static void write_bytes(const char *corpus, const char *name, const uint8_t *bytes, size_t size)
{
    FILE *file = new_file(corpus, name);
    if (fwrite(bytes, size, 1, file) != 1)
        fail_msg("cannot write");
    fclose(file);
}

static void write_signed(const char *corpus)
{
    static const uint8_t zeros[4];
    world w;
    tacit_buffer log = {0};
    make_world(&w, 1);
    for (size_t i = 0; i < w.count; i++) {
        uint8_t length[4];
        tacit_store_u32(length, (uint32_t)w.entry[i].size);
        if (tacit_buffer_append(&log, length, sizeof length) != TACIT_OK ||
            tacit_buffer_append(&log, w.entry[i].bytes, w.entry[i].size) != TACIT_OK)
            fail_msg("no memory");
    }
    if (tacit_buffer_append(&log, zeros, sizeof zeros) != TACIT_OK)
        fail_msg("no memory");
    uint8_t *bytes = log.data;
    size_t size = log.size - sizeof zeros;
    write_bytes(corpus, "log/good/one_round", bytes, size);
    write_bytes(corpus, "log/bad/length_zero", bytes, size + sizeof zeros);
    write_bytes(corpus, "log/bad/truncated", bytes, size - 1);
    bytes[size - 2] ^= 1;
    write_bytes(corpus, "log/bad/signature", bytes, size);
    memset(bytes, 0xff, 4);
    write_bytes(corpus, "log/bad/length_huge", bytes, 200);
    free(log.data);
    world_free(&w);
}

int main(int argc, char **argv)
{
    if (argc != 2 || sodium_init() < 0) {
        fprintf(stderr, "usage: make_audit_corpus CORPUS\n");
        return 2;
    }
    write_unsigned(argv[1], "audit/good/one_round", 1);
    write_unsigned(argv[1], "audit/good/three_rounds", WORLD_ROUNDS);
    write_signed(argv[1]);
    return 0;
}
