#include "client/activation.h"

#include "client/manifest.h"
#include "client/round_state_store.h"
#include "common/file.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "engine/adapter.h"
#include "privacy/receipt.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- active.json --- */

enum { ACTIVE_BYTES = 16384 };

static bool take_active(json_t *object, active_adapter *out)
{
    json_int_t version = 0;
    const char *lineage = NULL, *digest = NULL;
    *out = (active_adapter){0};
    if (json_unpack(object, "{s:I, s:s, s:s}", "version", &version, "lineage", &lineage, "digest",
                    &digest) != 0)
        return false;
    out->exists = version > 0 && tacit_unhex(out->lineage, sizeof out->lineage, lineage) &&
                  tacit_unhex(out->digest, sizeof out->digest, digest);
    out->version = (uint64_t)version;
    return out->exists;
}

tacit_status active_adapter_read(const client *c, active_adapter *current, active_adapter *previous,
                                 tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    uint8_t *text = NULL;
    size_t size = 0;
    *current = *previous = (active_adapter){0};
    tacit_status status = client_path(c, path, "adapters", "active.json", err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, ACTIVE_BYTES, &text, &size, err);
    if (status != TACIT_OK)
        return status == TACIT_NOT_FOUND ? TACIT_OK : status;
    json_t *root = json_loadb((const char *)text, size, JSON_REJECT_DUPLICATES, NULL);
    json_t *before = json_object_get(root, "previous");
    bool good = root && take_active(root, current) &&
                (!before || json_is_null(before) || take_active(before, previous));
    if (!good)
        status =
            tacit_fail(err, TACIT_BAD_INPUT,
                       "%s: it is damaged; remove it, and the next check-in sets it anew", path);
    json_decref(root);
    free(text);
    return status;
}

static json_t *describe(const active_adapter *a)
{
    char lineage[2 * CLIENT_LINEAGE_BYTES + 1], digest[2 * TACIT_DIGEST_BYTES + 1], file[80];
    if (!a->exists)
        return json_null();
    tacit_hex(lineage, a->lineage, sizeof a->lineage);
    tacit_hex(digest, a->digest, sizeof a->digest);
    snprintf(file, sizeof file, "%s.gguf", digest);
    return json_pack("{s:I, s:s, s:s, s:s}", "version", (json_int_t)a->version, "lineage", lineage,
                     "digest", digest, "file", file);
}

static tacit_status write_active(const client *c, const active_adapter *next,
                                 const active_adapter *previous, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    json_t *root = describe(next);
    if (root)
        json_object_set_new(root, "previous", describe(previous));
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (!text)
        return tacit_fail(err, TACIT_NO_MEMORY, "adapter: no memory");
    tacit_status status = client_path(c, path, "adapters", "active.json", err);
    if (status == TACIT_OK)
        status = tacit_file_write(path, text, strlen(text), 0600, err);
    free(text);
    return status;
}

static bool same_file(const active_adapter *a, const uint8_t *digest)
{
    return a->exists && memcmp(a->digest, digest, TACIT_DIGEST_BYTES) == 0;
}

/* Files that nothing refers to: neither in force, nor the previous one, nor an open round's, nor
 * `wanted` (NULL: none). */
static void drop_unused(const client *c, const active_adapter *current,
                        const active_adapter *previous, const uint8_t *wanted)
{
    char folder[CLIENT_PATH_MAX], path[CLIENT_PATH_MAX];
    round_state open_round;
    if (round_state_open(c->db, false, &open_round, NULL) == TACIT_OK) {
        round_state_free(&open_round); /* its parent may be any file: leave all */
        return;
    }
    DIR *dir = client_path(c, folder, NULL, "adapters", NULL) == TACIT_OK ? opendir(folder) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        uint8_t digest[TACIT_DIGEST_BYTES];
        char hex[2 * TACIT_DIGEST_BYTES + 1];
        if (strlen(e->d_name) < sizeof hex - 1)
            continue;
        memcpy(hex, e->d_name, sizeof hex - 1);
        hex[sizeof hex - 1] = '\0';
        if (!tacit_unhex(digest, sizeof digest, hex) || same_file(current, digest) ||
            same_file(previous, digest) || (wanted && memcmp(wanted, digest, sizeof digest) == 0))
            continue;
        if (client_path(c, path, "adapters", e->d_name, NULL) == TACIT_OK)
            unlink(path);
    }
    if (dir)
        closedir(dir);
}

void active_adapter_make_room(const client *c, const uint8_t wanted[TACIT_DIGEST_BYTES])
{
    active_adapter current, previous;
    if (active_adapter_read(c, &current, &previous, NULL) == TACIT_OK)
        drop_unused(c, &current, &previous, wanted);
}

tacit_status active_adapter_switch(client *c, const active_adapter *next, const tacit_model *model,
                                   tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    active_adapter current, previous;
    tacit_adapter *loaded = NULL;
    tacit_status status =
        client_hex_path(c, path, "adapters", next->digest, sizeof next->digest, "gguf", err);
    if (status == TACIT_OK)
        status = tacit_adapter_load(&loaded, model, path, err);
    if (status == TACIT_OK && tacit_adapter_get_info(loaded)->version != next->version)
        status = tacit_fail(err, TACIT_INTEGRITY, "%s: it says version %llu, its manifest %llu",
                            path, (unsigned long long)tacit_adapter_get_info(loaded)->version,
                            (unsigned long long)next->version);
    if (status == TACIT_OK && tacit_adapter_get_info(loaded)->canaries)
        status = tacit_fail(err, TACIT_REFUSED, "%s: trained with canaries, for an audit", path);
    tacit_adapter_free(loaded);
    if (status == TACIT_OK)
        status = active_adapter_read(c, &current, &previous, err);
    if (status == TACIT_OK)
        status = write_active(c, next, &current, err);
    if (status != TACIT_OK)
        return status;
    drop_unused(c, next, &current, NULL);
    tacit_log_info("adapter version %llu is active", (unsigned long long)next->version);
    return TACIT_OK;
}

/* --- following the server --- */

static tacit_status open_newest(const client *c, const client_checkin *in,
                                Tacit__AdapterManifest **out, tacit_error *err)
{
    return manifest_open(out, tacit_span_of(in->reply->manifest),
                         tacit_span_of(in->reply->manifest_signature), &c->enrolment.log, err);
}

static tacit_status check_published(const client *c, const client_checkin *in, tacit_error *err)
{
    const Tacit__CheckInReply *r = in->reply;
    tacit_proof proof;
    manifest_publication p = {.manifest = tacit_span_of(r->manifest),
                              .signature = tacit_span_of(r->manifest_signature),
                              .entry = tacit_span_of(r->manifest_entry),
                              .index = r->manifest_index,
                              .inclusion = &proof,
                              .checkpoint = &in->checkpoint};
    tacit_status status =
        tacit_proof_from_fields(&proof, r->manifest_proof, r->n_manifest_proof, err);
    return status == TACIT_OK ? manifest_check_logged(&p, &c->enrolment.log, err) : status;
}

static tacit_status remember(client *c, const Tacit__AdapterManifest *m, tacit_error *err)
{
    client_adapter row = {.version = m->version,
                          .epsilon_published = m->epsilon_published,
                          .delta = m->delta,
                          .accuracy = m->evaluation_accuracy,
                          .loss = m->evaluation_loss};
    memcpy(row.file_digest, m->file_digest.data, sizeof row.file_digest);
    memcpy(row.lineage, m->lineage.data, sizeof row.lineage);
    return client_adapter_put(c->db, &row, err);
}

static tacit_status fetch_and_switch(client *c, client_session *s, const client_checkin *in,
                                     const Tacit__AdapterManifest *m, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_model *model = NULL;
    active_adapter next = {.exists = true, .version = m->version};
    memcpy(next.lineage, m->lineage.data, sizeof next.lineage);
    memcpy(next.digest, m->file_digest.data, sizeof next.digest);
    tacit_status status;
    TACIT_TRY(check_published(c, in, err), done);
    TACIT_TRY(adapter_fetch(c, s, next.digest, m->file_bytes, path, err), done);
    TACIT_TRY(remember(c, m, err), done);
    TACIT_TRY(client_load_model(c, &model, err), done);
    TACIT_TRY(active_adapter_switch(c, &next, model, err), done);
done:
    tacit_model_free(model);
    return status;
}

tacit_status adapter_follow(client *c, client_session *s, const client_checkin *in, bool *switched,
                            tacit_error *err)
{
    Tacit__AdapterManifest *m = NULL;
    active_adapter current, previous;
    uint8_t base[TACIT_DIGEST_BYTES];
    *switched = false;
    if (in->reply->manifest.len == 0)
        return TACIT_OK;
    tacit_status status = open_newest(c, in, &m, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(active_adapter_read(c, &current, &previous, err), done);
    if (same_file(&current, m->file_digest.data))
        goto done;
    TACIT_TRY(client_base_digest(c, base, err), done);
    if (memcmp(base, m->base_digest.data, sizeof base) != 0) {
        tacit_log_warn("adapter version %llu is for another base than this device's; left alone",
                       (unsigned long long)m->version);
        goto done;
    }
    if (current.exists && memcmp(current.lineage, m->lineage.data, sizeof current.lineage) == 0 &&
        current.version > m->version)
        tacit_log_info("the server went back from adapter version %llu to %llu",
                       (unsigned long long)current.version, (unsigned long long)m->version);
    TACIT_TRY(fetch_and_switch(c, s, in, m, err), done);
    *switched = true;
done:
    tacit_message_free(m);
    return status;
}

/* --- the parent of a plan --- */

static bool is_parent(const Tacit__AdapterManifest *m, const Tacit__Plan *plan)
{
    return m->version == plan->parent_version && m->lineage.len == plan->lineage.len &&
           memcmp(m->lineage.data, plan->lineage.data, m->lineage.len) == 0 &&
           memcmp(m->base_digest.data, plan->base_digest.data, TACIT_DIGEST_BYTES) == 0 &&
           memcmp(m->file_digest.data, plan->parent_digest.data, TACIT_DIGEST_BYTES) == 0;
}

tacit_status adapter_fetch_parent(client *c, client_session *s, const client_checkin *in,
                                  const Tacit__Plan *plan, tacit_error *err)
{
    const Tacit__CheckInReply *r = in->reply;
    bool other = r->parent_manifest.len > 0;
    char path[CLIENT_PATH_MAX];
    Tacit__AdapterManifest *m;
    if (plan->parent_version == 0)
        return TACIT_OK;
    tacit_status status =
        manifest_open(&m, tacit_span_of(other ? r->parent_manifest : r->manifest),
                      tacit_span_of(other ? r->parent_manifest_signature : r->manifest_signature),
                      &c->enrolment.log, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "plan's parent");
    if (is_parent(m, plan))
        status = adapter_fetch(c, s, plan->parent_digest.data, m->file_bytes, path, err);
    else
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "plan's parent: the manifest that came with it is of another adapter");
    tacit_message_free(m);
    return status;
}
